"""Measure any encoder: `simcse evaluate encoder=FOLDER`; `--help` lists all options."""

import hydra
from omegaconf import DictConfig

from simcse_pl.config import CONF
from simcse_pl.config.entry_point import report_errors, run


@hydra.main(config_path=str(CONF), config_name="evaluate", version_base="1.3")
@report_errors
def evaluate(config: DictConfig) -> None:
    """Measure an encoder."""
    from simcse_pl.cli import evaluate_job  # after the config is composed, because importing torch takes seconds

    evaluate_job.evaluate(config)


def main() -> None:
    """Run the command."""
    run(evaluate)


if __name__ == "__main__":
    main()
