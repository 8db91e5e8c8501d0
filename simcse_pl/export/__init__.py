"""Export an encoder for other tools: ONNX and a model card for the Hugging Face Hub."""
