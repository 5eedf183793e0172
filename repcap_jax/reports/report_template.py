"""The page of `html.write_report`: one file, no scripts, nothing fetched from elsewhere."""

TEMPLATE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ title }}</title>
<style>
:root { --ink: #222; --soft: #666; --line: #d8d8d8; --accent: #332288; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1rem 4rem; max-width: 68rem; color: var(--ink); background: #fff;
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; }
h1 { font-size: 1.7rem; line-height: 1.2; margin: 0 0 .3rem; }
h2 { font-size: 1.2rem; margin: 2.6rem 0 .6rem; padding-top: .6rem; border-top: 1px solid var(--line); }
p { max-width: 46rem; margin: .6rem 0; }
.soft, figcaption, caption, .note { color: var(--soft); font-size: .88rem; }
.warnings { border-left: 3px solid #CC6677; padding: .1rem 1rem; margin: 1.2rem 0; background: #fcf4f4; }
.warnings li { overflow-wrap: anywhere; }
figure { margin: 1.2rem 0 1.8rem; }
figure img { display: block; max-width: 100%; height: auto; }
.scroll { overflow-x: auto; margin: 1rem 0 .4rem; }
table { border-collapse: collapse; font-size: .84rem; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: .5rem; caption-side: top; }
th, td { padding: .3rem .7rem .3rem 0; text-align: left; white-space: nowrap; border-bottom: 1px solid #ececec; }
thead th { border-bottom: 1.5px solid var(--ink); vertical-align: bottom; }
tbody tr:last-child td { border-bottom: 1.5px solid var(--ink); }
.right { text-align: right; }
details { margin-top: .8rem; }
summary { cursor: pointer; color: var(--accent); }
.record td { white-space: normal; overflow-wrap: anywhere; vertical-align: top; }
.record td:first-child { color: var(--soft); white-space: nowrap; }
@media (max-width: 36rem) { body { padding-top: 1rem; font-size: 15px; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  figure, tr { break-inside: avoid; }
  h2 { break-after: avoid; }
  .scroll { overflow: visible; }
  table { font-size: 6.5pt; }
  th, td { white-space: normal; padding-right: .35rem; }
}
</style>
</head>
<body>
<h1>{{ title }}</h1>
<p class="soft">{{ subtitle }}</p>
{% if warnings %}
<div class="warnings" role="note">
<p><strong>To know before reading on</strong></p>
<ul>{% for warning in warnings %}<li>{{ warning }}</li>{% endfor %}</ul>
</div>
{% endif %}
{% for section in sections %}
<section>
<h2>{{ section.title }}</h2>
{% for paragraph in section.text %}<p>{{ paragraph }}</p>
{% endfor %}
{% for table in section.tables %}
<div class="scroll"><table>
<caption>{{ table.caption }}</caption>
<thead><tr>{% for column in table.columns %}<th scope="col" class="{{ column.align }}">{{ column.header }}</th>
{%- endfor %}</tr></thead>
<tbody>
{% for row in table.cells %}<tr>{% for cell in row %}<td class="{{ table.columns[loop.index0].align }}">{{ cell }}</td>
{%- endfor %}</tr>
{% endfor %}</tbody>
</table></div>
{% for note in table.notes %}<p class="note">{{ note }}</p>{% endfor %}
{% endfor %}
{% for image in section.images %}
<figure>
<img alt="{{ image.caption }}" src="data:image/png;base64,{{ image.data }}">
<figcaption>{{ image.caption }} <span>({{ image.files }})</span></figcaption>
</figure>
{% endfor %}
</section>
{% endfor %}
<section>
<h2>Run record</h2>
<table class="record"><tbody>
{% for name, value in record %}<tr><td>{{ name }}</td><td>{{ value }}</td></tr>
{% endfor %}</tbody></table>
<details><summary>Settings</summary>
<table class="record"><tbody>
{% for name, value in settings %}<tr><td>{{ name }}</td><td>{{ value }}</td></tr>
{% endfor %}</tbody></table>
</details>
</section>
</body>
</html>
"""
