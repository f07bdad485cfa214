"""Fine-tuning for a classification of sentences in the Trainer of Hugging Face. The lines that end with `# pushpull` are new.

    pushpull run --job docs/examples/sentences_hf.ini --workers 2 --worker 'python3 docs/examples/sentences_hf.py OUT [MODEL]'

MODEL: a folder or name for from_pretrained; without it a small BERT is trained from the start, on invented sentences. OUT gets
what the Trainer saves.
"""
import sys

import torch
from transformers import AutoModelForSequenceClassification, BertConfig, BertForSequenceClassification, TrainingArguments

from pushpull.hf import PushPullTrainer as Trainer  # pushpull

WORDS, LENGTH, GOOD = 50, 12, 10  # token ids below GOOD make a sentence a good one


def sentences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.randint(0, WORDS, (count, LENGTH), generator=generator)
    labels = ((tokens < GOOD).sum(1) > 2).long()
    return [{"input_ids": one, "attention_mask": torch.ones_like(one), "labels": label} for one, label in zip(tokens, labels)]


def make_model(names):
    if names:
        return AutoModelForSequenceClassification.from_pretrained(names[0], num_labels=2)
    return BertForSequenceClassification(BertConfig(
        vocab_size=WORDS, hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64,
        max_position_embeddings=LENGTH, num_labels=2))


def main():
    out, *names = sys.argv[1:]
    torch.set_num_threads(1)
    torch.manual_seed(1)
    args = TrainingArguments(
        out, per_device_train_batch_size=8, num_train_epochs=3, learning_rate=0.002, lr_scheduler_type="constant",
        eval_strategy="epoch", save_strategy="no", logging_steps=50, report_to=[], use_cpu=True, disable_tqdm=True)
    trainer = Trainer(model=make_model(names), args=args, train_dataset=sentences(1600, 1), eval_dataset=sentences(200, 2))
    trainer.train()
    print(trainer.evaluate())
    trainer.save_model(out)


if __name__ == "__main__":
    main()
