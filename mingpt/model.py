"""GPT-2: the architecture of Radford et al. 2019, with its initialisation and tied embeddings.

Parameters have the names of the published weights. With the same weights, the logits equal those of
Hugging Face's GPT2LMHeadModel.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

# name: (layers, heads, width). The first three are minGPT's, for small machines.
MODELS = {
    "gpt-nano": (3, 3, 48),
    "gpt-micro": (4, 4, 128),
    "gpt-mini": (6, 6, 192),
    "gpt2": (12, 12, 768),
    "gpt2-medium": (24, 16, 1024),
    "gpt2-large": (36, 20, 1280),
    "gpt2-xl": (48, 25, 1600),
}


@dataclass(frozen=True)
class GPTConfig:
    """The shape of a model. Raises ValueError for an impossible one, and names the nearest."""

    vocab_size: int = 50257
    block_size: int = 1024  # the longest context
    n_layer: int = 12
    n_head: int = 12
    n_embd: int = 768
    dropout: float = 0.1

    def __post_init__(self):
        for name in ("vocab_size", "block_size", "n_layer", "n_head", "n_embd"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, but must be at least 1")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout is {self.dropout}, but must be in [0, 1)")
        if self.n_embd % self.n_head:
            nearest = max(1, round(self.n_embd / self.n_head)) * self.n_head
            raise ValueError(
                f"n_embd is {self.n_embd}, but must be a multiple of n_head, {self.n_head}: "
                f"the nearest is {nearest}"
            )

    @classmethod
    def preset(cls, name, **others):
        """`GPTConfig.preset("gpt-nano", vocab_size=96)`. Raises ValueError for an unknown name."""
        if name not in MODELS:
            raise ValueError(f"no preset {name!r}, but {', '.join(MODELS)}")
        n_layer, n_head, n_embd = MODELS[name]
        return cls(**{"n_layer": n_layer, "n_head": n_head, "n_embd": n_embd, **others})


class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.n_head, self.dropout = config.n_head, config.dropout

    def forward(self, x, past=None):
        query, key, value = (
            part.transpose(1, 2)  # batch, head, time, size
            for part in self.c_attn(x).unflatten(-1, (3, self.n_head, -1)).unbind(2)
        )
        if past is not None:
            if past:
                key, value = torch.cat((past[0], key), 2), torch.cat((past[1], value), 2)
            past[:] = key, value
        # One fused kernel: the time × time scores are never in memory. With a cache, the
        # query is the last token alone, which may attend to every key: no mask.
        y = F.scaled_dot_product_attention(
            query, key, value, dropout_p=self.dropout * self.training,
            is_causal=query.size(2) == key.size(2),
        )  # fmt: skip
        y = self.c_proj(y.transpose(1, 2).flatten(2))
        return F.dropout(y, self.dropout, self.training)


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd)
        self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd)
        self.dropout = config.dropout

    def forward(self, x):
        x = self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))
        return F.dropout(x, self.dropout, self.training)


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1, self.attn = nn.LayerNorm(config.n_embd), CausalSelfAttention(config)
        self.ln_2, self.mlp = nn.LayerNorm(config.n_embd), MLP(config)

    def forward(self, x, past=None):
        x = x + self.attn(self.ln_1(x), past)
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Maps tokens, a LongTensor [batch, time], to logits [batch, time, vocab_size].

    The logits at time t predict the token at t + 1 and depend on no later token. With `targets`,
    [batch, time], the model returns their cross-entropy instead: one number, in nats, summed over
    all targets that are not -100.
    """

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(config.vocab_size, config.n_embd),
            "wpe": nn.Embedding(config.block_size, config.n_embd),
            "h": nn.ModuleList(Block(config) for _ in range(config.n_layer)),
            "ln_f": nn.LayerNorm(config.n_embd),
        })  # fmt: skip
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.lm_head.weight = self.transformer.wte.weight
        for name, module in self.named_modules():
            if isinstance(module, (nn.Linear, nn.Embedding)):
                # 2 × n_layer of these add to each token's vector: their variances sum to 0.02².
                last = name.endswith("c_proj")
                std = 0.02 / math.sqrt(2 * config.n_layer) if last else 0.02
                nn.init.normal_(module.weight, std=std)
            if isinstance(module, nn.Linear) and module.bias is not None:
                nn.init.zeros_(module.bias)

    def parameter_groups(self, weight_decay):
        """Groups for the optimizer: matrices decay; biases and LayerNorm's gains do not."""
        parameters = list(self.parameters())
        return [
            {"params": [p for p in parameters if p.dim() > 1], "weight_decay": weight_decay},
            {"params": [p for p in parameters if p.dim() == 1], "weight_decay": 0.0},
        ]

    def forward(self, tokens, targets=None, past=None):
        """`past`, used by `generate`, is one list per layer. Attention keeps the keys and
        values of all tokens so far in it. After the first call, `tokens` is one token.
        """
        before = past[0][0].size(2) if past and past[0] else 0
        time = before + tokens.size(1)
        if time > self.config.block_size:
            most = self.config.block_size
            raise ValueError(f"{time} tokens, but the model looks back on {most}")
        positions = torch.arange(before, time, device=tokens.device)
        x = self.transformer.wte(tokens) + self.transformer.wpe(positions)
        x = F.dropout(x, self.config.dropout, self.training)
        for layer, block in enumerate(self.transformer.h):
            x = block(x, past[layer] if past is not None else None)
        # Tensor Cores need aligned rows, and 50,257 is odd: pad the product with rows of zeros.
        count = self.config.vocab_size
        weight = F.pad(self.lm_head.weight, (0, 0, 0, -count % 64))
        logits = F.linear(self.transformer.ln_f(x), weight)[..., :count]
        if targets is None:
            return logits
        # Compute the loss here, so that torch.compile sees it: otherwise a small model with
        # GPT-2's vocabulary takes twice as long (tools/bench/results/compiled_loss.txt).
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")

    @torch.no_grad()
    def generate(self, tokens, count, temperature=1.0, top_k=None, generator=None, cache=True):
        """`tokens` [batch, time], followed by `count` tokens drawn from the model's predictions.

        Temperature 0 takes the likeliest token; `top_k` draws among the k likeliest only. With
        `cache`, a token costs the work of one token while all fit into the block, with the same
        result. The model keeps its mode, training or evaluation.
        """
        past, seen = [[] for _ in self.transformer.h], 0
        training = self.training
        self.eval()
        for _ in range(count):
            if cache and tokens.size(1) <= self.config.block_size:
                logits = self(tokens[:, seen:], past=past)[:, -1]
                seen = tokens.size(1)
            else:  # the window moves: every position changes, so no key can be reused
                logits = self(tokens[:, -self.config.block_size :])[:, -1]
            if top_k is not None:
                least = logits.topk(min(top_k, logits.size(-1))).values[:, -1:]
                logits = logits.masked_fill(logits < least, -math.inf)
            if temperature < 1e-6:  # as 0: the quotients would overflow
                new = logits.argmax(-1, keepdim=True)
            else:
                odds = F.softmax(logits / temperature, dim=-1)
                new = torch.multinomial(odds, 1, generator=generator)
            tokens = torch.cat((tokens, new), dim=1)
        self.train(training)
        return tokens
