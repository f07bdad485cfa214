"""Tests a language model on a text: training, the same bits everywhere, evaluation, and the text that it generates."""
import json

import lab as base
from lab import MLP, expect, first

WORDS = ("the", "sea", "is", "calm", "tonight", "moon", "lies", "fair", "upon", "straits")
USAGE, DATA = 2, 3


def text_in(folder):
    """Writes a text with a pattern that a small model learns: each word is followed by the next one."""
    path = folder / "text.txt"
    path.write_text(" ".join(WORDS * 400))
    return path


def keys_in(folder):
    return {"model": "gpt", "dataset": "text", "data-dir": text_in(folder), "layers": 2, "heads": 2, "embed": 32, "sequence": 32,
            "global-batch": 8, "micro-batch": 2, "optimizer": "adamw", "lr": 0.004, "clip-norm": 1, "dropout": 0.1,
            "attention-dropout": 0.1, "steps": 12, "seed": 3}


@first("P1: gpt")
def a_gpt_gives_the_same_bits_on_any_cluster(lab):
    job = lab.job(keys_in(lab.folder))
    runs = [lab.train(job, servers, workers, **more)
            for servers, workers, more in ((1, 1, {}), (2, 2, {"transport": "tcp"}), (1, 4, {"slice_bytes": 4096}),
                                           (1, 2, {"strategy": "allreduce:tree"}))]
    expect(len({run["weights_sha256"] for run in runs}) == 1, [run["weights_sha256"] for run in runs])
    head = runs[0]["heads"][0]
    expect((head["name"], head["metric"]) == ("token", "perplexity") and head["value"] > 1, head)


def models_says_before_a_run_what_its_summary_says(lab):
    job = lab.job(keys_in(lab.folder))
    code, text = lab.call("pushpull", "models", "--job", job, "--json")
    expect(code == 0, text)
    figures = json.loads(text)
    run = lab.train(job, 1, 2)
    expect(figures["arena_bytes"] == run["arena_bytes"] > 0 and run["slots"] == 1, (figures, run))
    expect(figures["parameters"] == run["model_parameters"] and figures["flops"] > 0, (figures, run))
    expect(figures["fields"][0]["name"] == "ids" and figures["heads"][0]["metric"] == "perplexity", figures)


def a_comparison_has_a_perplexity_as_its_target(lab):
    job = lab.job({**keys_in(lab.folder), "steps": 20})
    words = ("compare", "--job", job, "--strategies", "sync", "--workers", 1, "--seeds", 1)
    code, text = lab.call("pushpull", *words, "--target-accuracy", 0.9, "--out", lab.folder / "refused")
    expect(code == USAGE and "measures perplexity" in text, (code, text))
    out = lab.folder / "compared"
    code, text = lab.call("pushpull", *words, "--target", 1000, "--out", out)
    expect(code == 0 and "perplexity" in text and "accuracy" not in text, (code, text))
    result = json.loads((out / "compare.json").read_text())
    run = result["runs"][0]
    expect((result["metric"], result["target"], result["target_accuracy"]) == ("perplexity", 1000, None), result["metric"])
    expect(run["test_accuracy"] is None and 1 < run["test_value"] < 1000 and run["seconds_to_target"] is not None, run)


def a_resume_in_the_middle_of_dropout_gives_the_same_bits(lab):
    job = lab.job(keys_in(lab.folder))
    whole = lab.train(job, 1, 2)
    out = lab.folder / "resumed"
    run = lab.run(job, 1, 3, out=out, stop_after=5)
    expect(run.code == 0, run.text[-500:])
    rest = lab.run(job, 2, 1, out=out, resume="true").summary()
    expect(rest["weights_sha256"] == whole["weights_sha256"], (rest, whole))


@first("generate")
def a_trained_gpt_goes_on_with_a_text(lab):
    out = lab.folder / "trained"
    # without dropout: so small a model learns the pattern in seconds
    run = lab.run(lab.job({**keys_in(lab.folder), "steps": 1500, "embed": 48, "lr": 0.002, "lr-schedule": "cosine", "warmup-steps": 20, "dropout": 0,
                           "attention-dropout": 0}), 1, 2, out=out)
    expect(run.code == 0, run.text[-500:])
    value = run.summary()["heads"][0]["value"]
    expect(value < 1.5, f"perplexity {value}")

    def generate(*words):
        return lab.call("pushpull", "generate", "--checkpoint", out / "checkpoints", *words)
    prompt = " ".join(WORDS) + " the sea is"  # longer than what the model sees at once
    code, text = generate("--prompt", prompt, "--tokens", 40, "--temperature", 0)
    expect(code == 0 and text.startswith(prompt + " calm tonight moon"), (code, text))
    drawn = [generate("--prompt", "the", "--tokens", 60, "--temperature", 2, "--seed", seed) for seed in (1, 1, 2)]
    expect(drawn[0] == drawn[1] != drawn[2] and drawn[0][0] == 0, drawn)

    code, text = lab.call("pushpull", "eval", "--checkpoint", out / "checkpoints", "--json")
    scored = json.loads(text)["heads"][0]
    expect(code == 0 and abs(scored["value"] - value) < 1e-6, (scored, value))

    code, text = generate("--prompt", "THE")
    expect(code == DATA and "--prompt" in text, (code, text))
    code, text = generate("--prompt", "the", "--tokens", 0)
    expect(code == USAGE and "--tokens 0" in text, (code, text))


def a_model_of_images_generates_no_text(lab):
    out = lab.folder / "images"
    run = lab.run(lab.job({**MLP, "steps": 1}), out=out)
    expect(run.code == 0, run.text[-500:])
    code, text = lab.call("pushpull", "generate", "--checkpoint", out / "checkpoints", "--prompt", "a")
    expect(code == DATA and "tokenizer.json" in text, (code, text))


def heads_must_divide_the_width(lab):
    run = lab.run(lab.job({**keys_in(lab.folder), "heads": 5}))
    expect(run.code == USAGE and "heads = 5 does not divide embed = 32" in run.text, (run.code, run.text[-500:]))


if __name__ == "__main__":
    base.main(globals())
