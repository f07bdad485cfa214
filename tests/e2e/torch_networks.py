"""Our networks in plain PyTorch; the large ones have the names of Hugging Face's and torchvision's modules."""
import math

import torch
from torch import nn
from torch.nn import functional


def attend(queries, keys, values, heads, mask=None):
    """Attention of several heads over [N, T, E]. mask: [N, T], 0 hides a key from all queries; None: a query sees its own
    place and those before it."""
    def split(x):
        return x.unflatten(-1, (heads, -1)).transpose(1, 2)
    queries, keys, values = split(queries), split(keys), split(values)
    seen = None if mask is None else (mask != 0)[:, None, None, :]
    if hasattr(functional, "scaled_dot_product_attention"):
        return functional.scaled_dot_product_attention(queries, keys, values, seen, is_causal=mask is None).transpose(1, 2).flatten(2)
    if seen is None:
        seen = torch.ones(queries.shape[2], queries.shape[2], dtype=torch.bool, device=queries.device).tril()
    scores = queries @ keys.transpose(2, 3) / math.sqrt(queries.shape[-1])
    return (scores.masked_fill(~seen, -math.inf).softmax(-1) @ values).transpose(1, 2).flatten(2)


class Conv1D(nn.Module):
    """Hugging Face's: a linear layer whose weight is [in, out]."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs).normal_(std=0.1))
        self.bias = nn.Parameter(torch.empty(outputs).normal_(std=0.1))

    def forward(self, x):
        return torch.addmm(self.bias, x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])


def named(**parts):
    """Returns a module that only gives its parts a common prefix."""
    return nn.ModuleDict(parts)


class Gpt(nn.Module):
    """GPT2LMHeadModel with tied embeddings. Batches: ids and targets [N, T], -1 where none counts."""

    def __init__(self, vocabulary, sequence, layers, heads, embed):
        super().__init__()
        self.heads = heads
        self.transformer = named(
            wte=nn.Embedding(vocabulary, embed), wpe=nn.Embedding(sequence, embed),
            h=nn.ModuleList(named(ln_1=nn.LayerNorm(embed), attn=named(c_attn=Conv1D(embed, 3 * embed), c_proj=Conv1D(embed, embed)),
                                  ln_2=nn.LayerNorm(embed), mlp=named(c_fc=Conv1D(embed, 4 * embed), c_proj=Conv1D(4 * embed, embed)))
                            for _ in range(layers)),
            ln_f=nn.LayerNorm(embed))

    def forward(self, ids):
        parts = self.transformer
        x = parts["wte"](ids) + parts["wpe"](torch.arange(ids.shape[1], device=ids.device))
        for block in parts["h"]:
            y = attend(*block["attn"]["c_attn"](block["ln_1"](x)).chunk(3, -1), self.heads)
            x = x + block["attn"]["c_proj"](y)
            y = block["mlp"]["c_fc"](block["ln_2"](x))
            x = x + block["mlp"]["c_proj"](functional.gelu(y, approximate="tanh"))
        return parts["ln_f"](x) @ parts["wte"].weight.t()

    def losses(self, batch, smoothing):
        """Returns the mean loss of each head."""
        ids, targets = batch
        scores = self(ids).flatten(0, 1)
        return {"token": functional.cross_entropy(scores, targets.flatten(), ignore_index=-1, label_smoothing=smoothing)}


class Bert(nn.Module):
    """BertModel and the heads of question answering. Batches: ids, mask, types [N, T]; start, end, -1 where none counts; class."""

    def __init__(self, vocabulary, sequence, layers, heads, embed):
        super().__init__()
        self.heads = heads
        norm = {"eps": 1e-12}

        def output(inputs):
            return named(dense=nn.Linear(inputs, embed), LayerNorm=nn.LayerNorm(embed, **norm))

        def layer():
            attention = {"self": named(query=nn.Linear(embed, embed), key=nn.Linear(embed, embed), value=nn.Linear(embed, embed)),
                         "output": output(embed)}
            return named(attention=named(**attention), intermediate=named(dense=nn.Linear(embed, 4 * embed)), output=output(4 * embed))
        self.bert = named(
            embeddings=named(word_embeddings=nn.Embedding(vocabulary, embed), position_embeddings=nn.Embedding(sequence, embed),
                             token_type_embeddings=nn.Embedding(2, embed), LayerNorm=nn.LayerNorm(embed, **norm)),
            encoder=named(layer=nn.ModuleList(layer() for _ in range(layers))),
            pooler=named(dense=nn.Linear(embed, embed)))
        self.qa_outputs = nn.Linear(embed, 2)
        self.reg_start = nn.Linear(embed, 1)
        self.reg_end = nn.Linear(embed, 1)
        self.classifier = nn.Linear(embed, 5)

    def forward(self, ids, mask, types):
        parts = self.bert["embeddings"]
        places = torch.arange(ids.shape[1], device=ids.device)
        x = parts["word_embeddings"](ids) + parts["token_type_embeddings"](types) + parts["position_embeddings"](places)
        x = parts["LayerNorm"](x)
        for block in self.bert["encoder"]["layer"]:
            project, output = block["attention"]["self"], block["attention"]["output"]
            y = attend(project["query"](x), project["key"](x), project["value"](x), self.heads, mask)
            x = output["LayerNorm"](x + output["dense"](y))
            y = functional.gelu(block["intermediate"]["dense"](x))
            x = block["output"]["LayerNorm"](x + block["output"]["dense"](y))
        start, end = self.qa_outputs(x).unbind(-1)
        pooled = torch.tanh(self.bert["pooler"]["dense"](x[:, 0]))
        return start, end, self.reg_start(pooled)[:, 0], self.reg_end(pooled)[:, 0], self.classifier(pooled)

    def losses(self, batch, smoothing):
        ids, mask, types, start, end, kind = batch
        scores = self(ids, mask, types)
        last = ids.shape[1] - 1
        result = {}
        for name, score, target in (("start", scores[0], start), ("end", scores[1], end)):
            sum_ = functional.cross_entropy(score, target, ignore_index=-1, label_smoothing=smoothing, reduction="sum")
            result[name] = sum_ / (target != -1).sum().clamp(min=1)  # without a wait for a GPU
        for name, score, target in (("start-position", scores[2], start), ("end-position", scores[3], end)):
            result[name] = functional.mse_loss(score, target.clamp(min=0).to(score.dtype) / last)
        result["class"] = functional.cross_entropy(scores[4], kind, label_smoothing=smoothing)
        return result


class Classifier(nn.Module):
    """A network that gives each image the scores of its classes. Batches: images and labels."""

    def losses(self, batch, smoothing):
        images, labels = batch
        return {"label": functional.cross_entropy(self(images), labels, label_smoothing=smoothing)}


class Mlp(Classifier):
    def __init__(self, inputs, hidden, classes):
        super().__init__()
        widths = [inputs, *hidden, classes]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        x = x.flatten(1)
        for index, layer in enumerate(self.layers):
            x = torch.relu(layer(x)) if index + 1 < len(self.layers) else layer(x)
        return x


class Convnet(Classifier):
    def __init__(self, shape, classes):
        super().__init__()
        channels, height, width = shape

        def block(inputs, outputs):
            return nn.Sequential(nn.Conv2d(inputs, outputs, 5, padding=2), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2))
        self.layer1 = block(channels, 16)
        self.layer2 = block(16, 32)
        self.fc = nn.Linear(32 * (height // 4) * (width // 4), classes)

    def forward(self, x):
        return self.fc(self.layer2(self.layer1(x)).flatten(1))


class BasicBlock(nn.Module):
    def __init__(self, inputs, channels, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inputs, channels, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(channels)
        if stride != 1:
            self.downsample = nn.Sequential(nn.Conv2d(inputs, channels, 1, stride, bias=False), nn.BatchNorm2d(channels))

    def forward(self, x):
        y = self.bn2(self.conv2(torch.relu(self.bn1(self.conv1(x)))))
        return torch.relu(y + (self.downsample(x) if hasattr(self, "downsample") else x))


class Resnet18(Classifier):
    """torchvision's resnet18 for small images: conv1 is 3x3, without pooling."""

    def __init__(self, channels, classes):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, 3, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        widths = (64, 64, 128, 256, 512)
        for i in range(4):
            first = BasicBlock(widths[i], widths[i + 1], 1 if i == 0 else 2)
            setattr(self, f"layer{i + 1}", nn.Sequential(first, BasicBlock(widths[i + 1], widths[i + 1], 1)))
        self.fc = nn.Linear(512, classes)

    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return self.fc(x.mean((2, 3)))
