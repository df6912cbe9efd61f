# SPDX-License-Identifier: MIT
"""Grouped causal attention as somebody ported it, with the mistake that docs/porter.md finds."""
import numpy as np


def attention(query, key, value):  # [B, H, T, D], [B, G, S, D], [B, G, S, E]
    heads, groups = query.shape[1], key.shape[1]
    key = np.tile(key, (1, heads // groups, 1, 1))
    value = np.tile(value, (1, heads // groups, 1, 1))
    scores = query @ key.transpose(0, 1, 3, 2) / np.sqrt(np.float32(query.shape[3]))
    future = np.triu(np.ones(scores.shape[-2:], bool), 1)
    scores = np.where(future, np.float32(-1e9), scores)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True) @ value
