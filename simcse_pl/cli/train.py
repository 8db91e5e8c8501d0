"""Train a sentence encoder: `simcse train model=roberta setting=supervised`; `--help` lists all options."""

import hydra
from omegaconf import DictConfig

from simcse_pl.config import CONF
from simcse_pl.config.entry_point import disable_hydra_output_on_other_ranks, report_errors, run


@hydra.main(config_path=str(CONF), config_name="train", version_base="1.3")
@report_errors
def train(config: DictConfig) -> float:
    """Train an encoder, and return its score."""
    from simcse_pl.cli import train_job  # after the config is composed, because importing torch takes seconds

    return train_job.train(config)


def main() -> None:
    """Run the command."""
    disable_hydra_output_on_other_ranks()
    run(train)


if __name__ == "__main__":
    main()
