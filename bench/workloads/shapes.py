"""Models of transformers by configuration, for jobs.py: random weights, nothing is downloaded.

Each takes one tensor and returns logits of [samples, classes], so that one loss fits all.
"""

import torch
import transformers
from transformers.models.whisper.modeling_whisper import WhisperEncoder

CLASSES = 1000
# Tokens of a sample. BERT's is a question with its paragraph (SQuAD), GPT-2's all of its window.
SEQUENCES = {"albert": 128, "bert-large": 384, "distilbert": 128, "gpt2-large": 1024}
FRAMES, BANDS = 3000, 128  # 30 s of speech as whisper-large-v3 hears it


class Logits(torch.nn.Module):
    """A model that classifies, or predicts tokens, without what it returns beside its logits."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x).logits.flatten(0, -2)


class Speech(torch.nn.Module):
    """Whisper large-v3's encoder, four of its 32 layers: its kernels are as long, and eight
    processes of it fit into a GPU."""

    def __init__(self):
        super().__init__()
        self.encoder = WhisperEncoder(transformers.WhisperConfig(
            d_model=1280, encoder_layers=4, encoder_attention_heads=20, encoder_ffn_dim=5120,
            num_mel_bins=BANDS, max_source_positions=FRAMES // 2))
        self.head = torch.nn.Linear(1280, CLASSES)

    def forward(self, x):
        return self.head(self.encoder(x).last_hidden_state.mean(1))


def albert():  # config.json of albert/albert-base-v2; the defaults are those of xxlarge
    return Logits(transformers.AlbertForSequenceClassification(transformers.AlbertConfig(
        hidden_size=768, num_attention_heads=12, intermediate_size=3072, num_labels=CLASSES)))


def bert_large():  # config.json of google-bert/bert-large-uncased
    return Logits(transformers.BertForSequenceClassification(transformers.BertConfig(
        hidden_size=1024, num_hidden_layers=24, num_attention_heads=16, intermediate_size=4096,
        num_labels=CLASSES)))


def distilbert():  # the defaults are those of distilbert-base-uncased
    return Logits(transformers.DistilBertForSequenceClassification(
        transformers.DistilBertConfig(num_labels=CLASSES)))


def gpt2_large():  # config.json of openai-community/gpt2-large
    return Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config(
        n_embd=1280, n_layer=36, n_head=20, use_cache=False)))


SHAPES = {"albert": albert, "bert-large": bert_large, "distilbert": distilbert,
          "gpt2-large": gpt2_large, "whisper-encoder": Speech}


def vocabulary(model):
    return model.model.config.vocab_size


def make_input(name, model, batch, generator):
    if name == "whisper-encoder":
        return torch.rand(batch, BANDS, FRAMES, device="cuda", generator=generator)
    return torch.randint(vocabulary(model), (batch, SEQUENCES[name]), device="cuda",
                         generator=generator)


def make_targets(name, model, batch, generator):
    """One for each row of logits: GPT-2 predicts every token."""
    predicts = name == "gpt2-large"
    return torch.randint(vocabulary(model) if predicts else CLASSES,
                         (batch * SEQUENCES[name] if predicts else batch,), device="cuda",
                         generator=generator)
