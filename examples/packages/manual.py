#!/usr/bin/env python3
"""Writes the manual into an installed tree: manual.py TREE

share/man: a page for each program and subcommand, from its --help; heddled.toml(5), and the guides.
share/doc/heddle: the source tree's pages; links to what is not installed become plain text.
Completion for bash and zsh: the words that each --help lists.
"""

import gzip
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = ["README.md", "SECURITY.md", "CHANGELOG.md", "LICENSE", "examples/*/*.md", "bench/*.svg",
         *(f"{folder}/**/*.md" for folder in ("daemon", "policies", "shim", "bench", "profiles"))]
# Where an installed tree has what the source tree has elsewhere.
INSTALLED = {"policies": "share/heddle/policies", "profiles/gpu": "share/heddle/gpu",
             "profiles/jobs": "share/heddle/jobs",
             "examples/heddled.toml": "share/heddle/heddled.toml",
             "examples/promise.toml": "share/heddle/promise.toml",
             "examples/grafana": "share/heddle/grafana",
             "examples/prometheus": "share/heddle/prometheus"}
GUIDES = {"heddle-start": ("daemon/START.md", "from nothing to a service under a promise"),
          "heddle-operating": ("daemon/OPERATING.md", "operating heddled"),
          "heddle-policies": ("policies/GUIDE.md", "writing and changing policies of heddle")}
LINK = re.compile(r"\[([^][]*)\]\(([^()\s]+)\)")


def known(commands):
    """Those that said something."""
    return [each for each in commands if each.title]


class Command:
    """What `program words... --help` says."""

    def __init__(self, program, words=()):
        self.name = " ".join([program.name, *words])
        done = subprocess.run([program, *words, "--help"], capture_output=True, text=True)
        if done.returncode:  # no reason to end an installation
            print(f"manual.py: no page for {self.name}: its --help said: {done.stderr.strip()}",
                  file=sys.stderr)
            self.title = self.usage = ""
            self.sections, self.end, self.below = {}, [], []
            return
        title, usage, *rest = done.stdout.splitlines()
        if title.startswith("usage: "):  # argparse: the title is the first paragraph below
            usage, (title, *rest) = title, filter(None, rest)
        self.title = title.removeprefix(program.name + ": ")
        self.usage = usage.partition(program.name)[2].removeprefix("".join(f" {w}" for w in words))
        self.sections, self.end = {}, []
        lines = None
        for line in rest:
            if re.fullmatch(r"[A-Z][a-z]+:|options:", line):
                lines = self.sections.setdefault(line[:-1].capitalize(), [])
            elif line and not line.startswith(" "):
                lines = self.end
                lines.append(line)
            elif lines is not None:
                lines.append(line)
        self.below = known(Command(program, (*words, word)) for word in self.words("Subcommands"))

    def entries(self, section):
        """Pairs of what a line names, and the lines that say what it is."""
        entries = []
        for line in self.sections.get(section, []):
            if re.match(r"  \S", line):
                name, _, text = line.strip().partition("  ")
                entries.append((name, [text.strip()] if text.strip() else []))
            elif line.strip() and entries:
                entries[-1][1].append(re.sub(r"^ {1,30}", "", line))
        return entries

    def words(self, section):
        return [name.split()[0] for name, _ in self.entries(section)]

    def completed(self):
        options = [part for name in self.words("Options")
                   for part in name.split(",") if part]
        return self.words("Subcommands") + options

    def tree(self):
        return [self, *(each for below in self.below for each in below.tree())]


def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in (".", "'") else text


def prose(text):
    """A line of Markdown without its marks."""
    return roff(re.sub(r"[`*]", "", LINK.sub(r"\1", text)))


def page_head(name, section, title):
    return [f'.TH {roff(name).upper()} {section} "" heddle', ".SH NAME",
            f"{roff(name)} \\- {roff(title)}"]


def entries_of(command, section):
    for name, lines in command.entries(section):
        yield from (".TP", f".B {roff(name)}")
        for line in lines:
            # Lines that are set further in are tables.
            yield from ([".br", roff(line.strip())] if line.startswith(" ") else [roff(line)])


def options_of(command):
    for section in command.sections:
        if section != "Subcommands":
            yield f".SS {section}"
            yield from entries_of(command, section)


def command_page(command, section):
    yield from page_head(command.name.replace(" ", "-"), section, command.title)
    yield from (".SH SYNOPSIS", f".B {roff(command.name)}", roff(command.usage.strip()))
    yield ".SH DESCRIPTION"
    yield from entries_of(command, "Subcommands")
    yield from options_of(command)
    for below in (each for first in command.below for each in first.tree()):
        if " " in command.name or command.name == "heddle-bench":
            yield f".SH {roff(below.name).upper()}"
            yield from (roff(below.title), ".PP", f".B {roff(below.name)}",
                        roff(below.usage.strip()))
            yield from options_of(below)
    for line in command.end:
        yield from (".PP", roff(line.strip()))
    yield from (".SH SEE ALSO", "heddle(1), heddled(8), heddled.toml(5), heddle\\-start(7),",
                "heddle\\-operating(7), heddle\\-policies(7)")


def guide_page(name, source, title):
    yield from page_head(name, 7, title)
    code = False
    for line in (ROOT / source).read_text().splitlines()[1:]:
        if line.startswith("```"):
            code = not code
            yield from ([".PP", ".nf", ".RS 4"] if code else [".RE", ".fi"])
        elif code:
            yield roff(line) or "\\&"
        elif line.startswith("#"):
            mark, _, text = line.partition(" ")
            yield f".{'SH' if len(mark) == 2 else 'SS'} {prose(text)}"
        elif line.startswith("|"):
            cells = [prose(cell.strip().replace("\\|", "|"))
                     for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            if not all(set(cell) <= set("\\-: ") for cell in cells):
                yield from (".TP", f".B {cells[0] or 'what'}", ": ".join(cells[1:]) or "\\&")
        elif re.fullmatch(r"\s*- \[[^]]*\]\(#[^)]*\)|<!--.*-->", line):
            continue  # a table of contents, a mark
        elif re.match(r"\s*(?:[-*]|\d+\.) ", line):
            yield from (".IP \\(bu 2", prose(line.split(maxsplit=1)[1]))
        else:
            yield prose(line.strip()) if line.strip() else ".PP"


def text_page(name, source, title):
    yield from page_head(name, 5, title)
    yield from (".SH FILE", ".nf", *(roff(line) or "\\&" for line in source.splitlines()), ".fi")


def bash_completion(trees):
    cases = "\n".join(f'    "{each.name}") words="{" ".join(each.completed())}" ;;'
                      for tree in trees for each in tree.tree())
    return f"""# bash completion for heddle
_heddle() {{
  local word path=${{1##*/}} words known
  local current=${{COMP_WORDS[COMP_CWORD]}}
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${{COMP_WORDS[i]}}
    if [ "$word" = -- ]; then
      ! declare -F _command_offset >/dev/null || _command_offset $((i + 1))
      return
    fi
    known=$(_heddle_words "$path $word")
    [ -z "$known" ] || path="$path $word"
  done
  mapfile -t COMPREPLY < <(compgen -W "$(_heddle_words "$path")" -- "$current")
}}
_heddle_words() {{
  local words=
  case $1 in
{cases}
  esac
  echo "$words"
}}
complete -o default -F _heddle {" ".join(tree.name for tree in trees)}
"""


def zsh_completion(trees):
    names = " ".join(tree.name for tree in trees)
    return f"""#compdef {names}
autoload -U +X bashcompinit && bashcompinit
{bash_completion(trees)}"""


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def write_page(tree, name, section, lines):
    path = tree / f"share/man/man{section}/{name}.{section}.gz"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress("\n".join([*lines, ""]).encode(), mtime=0))


def linked(tree, page, pages):
    """The page's text: links to what is neither a page nor installed are plain text."""
    def link(found):
        text, target = found.groups()
        path, mark, anchor = target.partition("#")
        if not path or "://" in target:
            return found[0]
        inside = pathlib.Path(*(ROOT / page).parent.joinpath(path).resolve().parts)
        if not inside.is_relative_to(ROOT):
            return text
        inside = inside.relative_to(ROOT)
        up = "../" * (len(page.parts) - 1)
        if (folder := inside / "README.md") in pages:
            inside = folder
        if inside in pages:
            return f"[{text}]({up}{inside}{mark}{anchor})"
        for source, place in INSTALLED.items():
            if inside.is_relative_to(source):
                there = pathlib.Path(place) / inside.relative_to(source)
                if (tree / there).exists():
                    return f"[{text}]({up}../../../{there})"
        return text
    return LINK.sub(link, (ROOT / page).read_text())


def main():
    if len(sys.argv) != 2 or not pathlib.Path(sys.argv[1], "bin/heddle").exists():
        sys.exit(__doc__)
    tree = pathlib.Path(sys.argv[1]).resolve()
    heddle, bench, daemon = (Command(tree / "bin" / name)
                             for name in ("heddle", "heddle-bench", "heddled"))
    for command in known((heddle, *heddle.below, bench)):
        write_page(tree, command.name.replace(" ", "-"), 1, command_page(command, 1))
    for command in known((daemon,)):
        write_page(tree, command.name, 8, command_page(command, 8))
    configuration = (tree / "share/heddle/heddled.toml").read_text()
    write_page(tree, "heddled.toml", 5,
               text_page("heddled.toml", configuration, "the configuration of heddled"))
    for name, (source, title) in GUIDES.items():
        write_page(tree, name, 7, guide_page(name, source, title))
    write(tree / "share/bash-completion/completions/heddle", bash_completion([heddle]))
    write(tree / "share/bash-completion/completions/heddle-bench", bash_completion([bench]))
    write(tree / "share/zsh/site-functions/_heddle", zsh_completion([heddle]))
    pages = {path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern)}
    for page in pages:
        write(tree / "share/doc/heddle" / page, linked(tree, page, pages))


if __name__ == "__main__":
    main()
