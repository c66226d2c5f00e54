#!/usr/bin/env python3
"""Prints every short text over the characters that CSV gives a meaning, and the rows that Python's csv module reads in it: a line of
JSON each, {"text", "rows": [[CELL, ...], ...], "open": whether its last row ends within a quote}. Rows of nothing ([]) are left out,
as csv.DictReader leaves them out."""

import csv
import io
import itertools
import json


def rows(text):
    return [row for row in csv.reader(io.StringIO(text, newline="")) if row]


def main():
    alphabets = ['",a\n '] * 5 + ['",\n']
    for length, alphabet in enumerate(alphabets):
        for characters in itertools.product(alphabet, repeat=length):
            text = "".join(characters)
            is_open = rows(text + "\nZ")[-1] != ["Z"]
            print(json.dumps({"text": text, "rows": rows(text), "open": is_open}))


if __name__ == "__main__":
    main()
