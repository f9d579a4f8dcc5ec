"""transformers: a small Llama with random weights reads prompts and decodes greedily."""

from program import finish, rounds, skip
from torch_setting import pinned, tensor_digest

torch = pinned()

try:
    import transformers
except ImportError:
    skip("not installed: transformers")

TOKENS = 8


def main():
    config = transformers.LlamaConfig(
        num_hidden_layers=4, hidden_size=512, intermediate_size=1408, num_attention_heads=8,
        num_key_value_heads=4, vocab_size=4096)
    with torch.device("cuda"):
        model = transformers.LlamaForCausalLM(config).eval()
    tokens = []
    with torch.inference_mode():
        for index in rounds():
            ids = torch.arange(64, device="cuda")[None] * (index + 1) % config.vocab_size
            cache = transformers.DynamicCache(config=config)
            for _ in range(TOKENS):
                ids = model(ids, past_key_values=cache, use_cache=True).logits[:, -1:].argmax(-1)
                tokens.append(ids)
            torch.cuda.synchronize()
        finish({"tokens": tensor_digest(torch.cat(tokens))})


main()
