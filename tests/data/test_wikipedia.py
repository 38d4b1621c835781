import bz2
import gzip
import json
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.runs.commands import vtune
from vtune.data.wikipedia import Article, passages, read_articles
from vtune.data.wikitext import plain_text
from vtune.errors import DataError
from vtune.tools.bm25 import PassageIndex

SARK = """{{Short description|Island}}
{{Infobox island|name=Sark|map={{Location map|x=1}}|area={{convert|5.45|km2}}|}}
[[File:Sark.jpg|thumb|The [[harbour|old harbour]] of Sark]]
'''Sark''' ({{lang-fr|Sercq}}) is a part of the [[Channel Islands]]<ref name="a">See [http://x.org x].</ref>
in the [[English Channel|Channel]].<ref name="a" /> It has about 500&nbsp;inhabitants.<!-- {{count}} -->

== History ==
* In [[1565]] it was settled [https://x.org by Helier de Carteret].
{| class="wikitable"
! Year !! People
|-
| 1821 || 488
|}
[[Category:Islands]]
"""


def page(number: int, title: str, text: str, *, ns: int = 0, redirect: bool = False) -> str:
    to = '<redirect title="Sark" />' if redirect else ""
    return (
        f"<page><title>{escape(title)}</title><ns>{ns}</ns><id>{number}</id>{to}<revision><id>9{number}</id>"
        f'<model>wikitext</model><text bytes="1" xml:space="preserve">{escape(text)}</text></revision></page>'
    )


DUMP = (
    '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.11/" version="0.11" xml:lang="en"><siteinfo>'
    "<sitename>Wikipedia</sitename></siteinfo>"
    + page(7, "Sark", SARK)
    + page(8, "Sercq", "#REDIRECT [[Sark]]", redirect=True)
    + page(9, "Talk:Sark", "An opinion.", ns=1)
    + page(10, "Brecqhou & more", "It lies to the west." * 1)
    + page(11, "Empty", "{{stub}}\n\n{{cite")
    + "</mediawiki>"
).encode()

PLAIN = (
    "Sark () is a part of the Channel Islands in the Channel. It has about 500 inhabitants. "
    "In 1565 it was settled by Helier de Carteret."
)


def test_markup_is_removed_and_the_words_are_kept() -> None:
    assert plain_text(SARK) == (PLAIN, False)


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a {{b|{{c}}|d}} e", "a e"),
        ("a {{never closed", "a"),
        ("a }} b |} c", "a }} b |} c"),
        ("a <ref>never closed", "a"),
        ("a<br/>b <i>c</i> x < y", "a b c x < y"),
        ("[[:Category:Islands|islands]] [[de:Sark]] [[Datei:A.png]]", "islands"),
        ("''a'' '''''b'''''", "a b"),
        ("&lt;ref&gt; &amp; 5 &minus; 3", "<ref> & 5 − 3"),
        ("<math>x^2</math> is {{math|''y''}}", "is"),
        ("__NOTOC__\n# one\n## two", "one two"),
        (
            "[[Star Wars: Episode IV|A New Hope]] and [[Mission: Impossible]]",
            "A New Hope and Mission: Impossible",
        ),
        ("[[It: Chapter Two]] [[wikt:island|island]] [[zh-min-nan:Sark]]", "It: Chapter Two island"),
        ("[[ File:a.b|thumb|by [http://x [[y]] z]]] a [[Bild:b.JPG|c]]", "a"),
        ("[[a [b] c]] [[d|[e]]] ]] [[f", "a [b] c [e] ]] [[f"),
    ],
)
def test_every_kind_of_markup_is_handled(markup: str, text: str) -> None:
    assert plain_text(markup).text == text


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        ("a {{cite never closed\n\nb\n== H ==\nc", "a b c"),
        ("a <ref>never closed {{x}}\n \nb <ref>c</ref> d", "a b d"),
        ("a <ref>never closed\n== H ==\nb <ref name=x/> c", "a b c"),
        ("a {{b|{{c}}\n\nd {{e}} f", "a d f"),
        ("{{Infobox|x={{y}\n|z=1\n}}\n\na", "a"),
        ("a {{b {{c\n\n}} d\n\ne", "a d e"),
        ("{| class=x\n|-\n| 1\n\na", "a"),
        ("a <!-- never closed\n\nb", "a"),
        ("a <ref>{{cite\n\n|b}} c\n\nd", "a d"),
        ("{{Infobox|x=<ref>y\n\n|z}} a", "a"),
    ],
)
def test_unclosed_markup_loses_at_most_its_paragraph(markup: str, text: str) -> None:
    assert plain_text(markup) == (text, True)


def test_closed_markup_may_span_paragraphs() -> None:
    markup = "a <gallery>b\n\nc</gallery> {{d|\n\ne}} <REF name=x>f\n\ng</ref > <ref name=x /> h"
    assert plain_text(markup) == ("a h", False)


@pytest.mark.parametrize(
    "markup",
    [
        "a <syntaxhighlight lang=html><video><source src=x></video></syntaxhighlight> b",
        "a <ref>x <ref>y</ref> b",
        "a <ref>x {{cite\n\n|y}} <ref>z</ref> b",
        "a <ref>x <math>y</ref> b",
        "a <gallery>x <ref>y</ref>\n\n<ref>z</gallery> b",
    ],
)
def test_an_element_ends_at_the_next_end_tag_despite_lookalikes(markup: str) -> None:
    assert plain_text(markup) == ("a b", False)


@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "{|",
                "|}",
                "[[",
                "]]",
                "|",
                "<ref>",
                "</ref>",
                "<!--",
                "-->",
                "''",
                "=",
                "\n",
                "a",
                "b c",
                "[http://x y]",
                "&lt;",
            ]
        ),
        max_size=30,
    ).map("".join)
)
def test_any_markup_becomes_one_line_without_new_words(markup: str) -> None:
    text = plain_text(markup).text
    assert text == " ".join(text.split())
    assert set(text) & set("abcy") <= set(markup)
    assert plain_text("") == ("", False)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("北京是中国的首都。它很大，有两千万人。", ["北京是中国的", "首都。它很大，", "有两千万人。"]),
        ("กรุงเทพมหานคร", ["กรุงเทพ", "มหานคร"]),
        ("東京（Tokyo）は 日本", ["東京（Tokyo）は", "日本"]),
        ("서울은 대한민국의 수도이다 그리고", ["서울은 대한민국의 수도이다", "그리고"]),
        ("one two three four", ["one two three", "four"]),
        ("Beijing (北京) is the capital", ["Beijing (北京) is", "the capital"]),
        ("A「東京」（大阪）x", ["A「東京」（大阪）", "x"]),
        ("a ( b", ["a ( b"]),
        ("北京 / 天津 (", ["北京 / 天津", "("]),
    ],
    ids=["Chinese", "Thai", "Japanese", "Korean", "English", "within", "brackets", "alone", "signs alone"],
)
def test_in_scripts_without_spaces_two_characters_count_as_a_word(text: str, found: list[str]) -> None:
    assert list(passages(Article("1", "", text), 3)) == found


@given(st.text("a ,(）「」北ก\u0e34", max_size=40), st.integers(1, 3))
def test_passages_omit_nothing_and_end_with_no_open_bracket(text: str, words: int) -> None:
    found = list(passages(Article("1", "", text), words))
    assert all(found)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(before[-1] not in "(（「" or f"{before} " in text for before, after in pairwise(found))


@given(st.text("ab \n\u00a0", max_size=80), st.integers(1, 9))
def test_passages_cover_the_text_and_all_but_the_last_are_full(text: str, words: int) -> None:
    found = list(passages(Article("1", "", text), words))
    assert [word for passage in found for word in passage.split()] == text.split()
    assert all(len(passage.split()) == words for passage in found[:-1])
    assert all(1 <= len(passage.split()) <= words for passage in found)


@pytest.mark.parametrize(
    "piece",
    [
        "=",
        "[http://x ",
        "[[",
        "{{",
        "<ref>",
        "'",
        "<!--",
        "{|",
        "[[a|",
        "<",
        "[//",
        "]]",
        "&",
        "</ref ",
        "<ref>{{a}}<ref></ref>",
        "<ref>{{a\n\n}}",
    ],
)
def test_endless_markup_is_read_in_linear_time(piece: str) -> None:
    """A hundred thousand pieces take a fraction of a second; quadratic time would be minutes."""
    began = time.process_time()
    plain_text(piece * 100_000 + "x")
    assert time.process_time() - began < 5


def test_nested_links_are_read_in_linear_time() -> None:
    began = time.process_time()
    assert plain_text("[[a " * 20_000 + "]]" * 20_000).text.count("a") == 20_000
    assert time.process_time() - began < 5


def test_file_and_category_names_come_from_the_wiki(tmp_path: Path) -> None:
    spaces = (
        '<namespaces><namespace key="0" /><namespace key="14">Kategorie</namespace></namespaces></siteinfo>'
    )
    links = "a [[Kategorie:Insel|*]] b [[Kategorien: eine Oper|Oper]]"
    path = tmp_path / "dewiki.xml"
    path.write_bytes(
        DUMP.replace(b"</siteinfo>", spaces.encode()).replace(b"It lies", f"{links} It".encode())
    )
    assert [one.text for one in read_articles(path)][1].startswith("a b Oper It")


def packed(name: str) -> Callable[[bytes], bytes]:
    return {"xml": bytes, "bz2": bz2.compress, "gz": gzip.compress}[name]


@pytest.mark.parametrize("name", ["xml", "bz2", "gz"])
def test_a_dump_gives_its_articles(tmp_path: Path, name: str) -> None:
    path = tmp_path / f"enwiki-pages-articles.{name}"
    path.write_bytes(packed(name)(DUMP))
    found = list(read_articles(path))
    assert [(one.id, one.title) for one in found] == [
        ("7", "Sark"),
        ("10", "Brecqhou & more"),
        ("11", "Empty"),
    ]
    assert [one.text for one in found] == [PLAIN, "It lies to the west.", ""]
    path.write_bytes(packed(name)(DUMP)[:-40])
    with pytest.raises(DataError, match=r"not a complete MediaWiki dump|cannot read"):
        list(read_articles(path))


def test_a_damaged_compressed_dump_is_an_error_of_the_file(tmp_path: Path) -> None:
    data = bytearray(gzip.compress(DUMP))
    data[10:12] = b"\xff\xff"  # an invalid deflate block type
    (tmp_path / "wiki.xml.gz").write_bytes(data)
    with pytest.raises(DataError, match="cannot read"):
        list(read_articles(tmp_path / "wiki.xml.gz"))


def test_expanding_entities_are_refused(tmp_path: Path) -> None:
    bombs = "".join(f'<!ENTITY b{n} "{f"&b{n - 1};" * 10}">' for n in range(1, 10))
    text = f'<!DOCTYPE m [<!ENTITY b0 "{"lol" * 10}">{bombs}]>{DUMP.decode().replace("It lies", "&b9;")}'
    (tmp_path / "wiki.xml").write_text(text)
    with pytest.raises(DataError, match="not a complete MediaWiki dump"):
        list(read_articles(tmp_path / "wiki.xml"))


def test_a_dump_of_all_revisions_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wiki.xml").write_bytes(
        DUMP.replace(b"<revision>", b"<revision><text>old</text></revision><revision>")
    )
    with pytest.raises(DataError, match="several revisions of 'Sark'"):
        list(read_articles(tmp_path / "wiki.xml"))


def test_a_lone_surrogate_in_a_row_is_tolerated(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"title": "a\\ud800", "text": "b"}\n')
    ended = vtune("data", "make", "passages", tmp_path / "rows.jsonl", "--out", tmp_path / "out.jsonl")
    assert ended.code == 0, ended.err
    assert json.loads((tmp_path / "out.jsonl").read_text())["title"] == "a?"


def test_a_file_that_is_not_a_dump_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "feed.xml"
    path.write_text("<rss><page/></rss>")
    with pytest.raises(DataError, match="not <mediawiki>"):
        list(read_articles(path))
    path = tmp_path / "rows.jsonl"
    path.write_text('{"id": "0", "contents": "x"}\n')
    with pytest.raises(DataError, match="needs `title` and `text`") as caught:
        list(read_articles(path))
    assert caught.value.where == f"{path}, row 0"


def test_a_dump_becomes_an_index_by_two_commands(tmp_path: Path) -> None:
    (tmp_path / "wiki.xml.bz2").write_bytes(bz2.compress(DUMP))
    made = vtune(
        "data",
        "make",
        "passages",
        tmp_path / "wiki.xml.bz2",
        "--out",
        tmp_path / "wiki.jsonl",
        "--words",
        "10",
        "--json",
    )
    assert made.code == 0, made.err
    told = json.loads(made.out)
    assert (told["articles"], told["empty"], told["unclosed"], told["rows"]) == (3, 1, 1, 4)
    rows = [json.loads(line) for line in (tmp_path / "wiki.jsonl").read_text().splitlines()]
    assert rows[0] == {"id": "7/0", "title": "Sark", "text": "Sark () is a part of the Channel Islands in"}
    assert vtune("data", "index", tmp_path / "wiki.jsonl", "--out", tmp_path / "index").code == 0
    (found,) = PassageIndex(tmp_path / "index").find("Helier de Carteret", 1)
    assert (found.id, found.title) == ("7/2", "Sark")


def test_articles_in_the_hubs_layout_are_split_the_same_way(tmp_path: Path) -> None:
    """wikimedia/wikipedia: id, url, title, text, with line breaks between paragraphs."""
    row = {
        "id": "12",
        "url": "https://en.wikipedia.org/wiki/Sark",
        "title": "Sark",
        "text": "One two\n\nthree four",
    }
    (tmp_path / "20231101.en").mkdir()
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "20231101.en" / "train-00000-of-00001.parquet")
    (article,) = read_articles(tmp_path / "20231101.en")
    assert (article.id, list(passages(article, 3))) == ("12", ["One two three", "four"])


def test_a_corpus_without_words_is_refused_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"title": "a", "text": " "}\n')
    ended = vtune("data", "make", "passages", tmp_path / "rows.jsonl", "--out", tmp_path / "out.jsonl")
    assert (ended.code, "no article has a word" in ended.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["rows.jsonl"]
