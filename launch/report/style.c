/* Colours have names, so that light and dark differ in one place. They keep a contrast of 4.5 : 1 for text
 * and 3 : 1 for lines against their ground. */
#include "launch/report/html.h"

static const char *const rules[] = {
    ":root{color-scheme:light dark;--bg:#ffffff;--ink:#1b1f24;--soft:#57606a;--line:#d5dbe1;"
    "--ground:#f5f7f9;--c0:#0b62c4;--c1:#b4470c;--c2:#157a3c;--c3:#7e22ce;--bad:#b42318;"
    "--codes:#e4effb;--yes:21,122,60;--no:180,35,24;--span:#f0f3f6}\n",
    "@media (prefers-color-scheme:dark){:root{--bg:#0f1318;--ink:#e6e9ed;--soft:#9fa9b4;"
    "--line:#2e363f;--ground:#181d23;--c0:#6cb1ff;--c1:#ffa657;--c2:#5fd08a;--c3:#d2a8ff;"
    "--bad:#ff8b80;--codes:#1c2b3d;--yes:95,208,138;--no:255,139,128;--span:#171c22}}\n",
    "*{box-sizing:border-box}\n",
    "html{-webkit-text-size-adjust:100%}\n",
    "body{margin:0 auto;padding:0 clamp(12px,3vw,40px) 64px;max-width:1600px;background:var(--bg);"
    "color:var(--ink);font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu "
    "Sans',sans-serif;overflow-wrap:anywhere}\n",
    "header{padding-top:28px}\n",
    ".brand{margin:0;color:var(--soft);font-size:13px;letter-spacing:.04em}\n",
    "h1{margin:2px 0 8px;font-size:30px;line-height:1.2;font-weight:650}\n",
    "h2{margin:0 0 12px;font-size:20px;font-weight:620}\n",
    "h3{margin:20px 0 8px;font-size:16px}\n",
    "h4{margin:0 0 2px;font-size:14px}\n",
    "h4 small{color:var(--soft);font-weight:400}\n",
    ".sub,.note,.facts{margin:0 0 12px;color:var(--soft)}\n",
    ".note,.facts{font-size:13px}\n",
    ".missing{margin:0 0 12px;padding:8px 12px;border-left:3px solid "
    "var(--line);background:var(--ground);color:var(--soft);font-size:14px}\n",
    "section{margin-top:36px;padding-top:20px;border-top:1px solid var(--line)}\n",
    ".tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(150px,1fr));gap:10px;"
    "margin:12px 0 20px}\n",
    ".tile{padding:10px 14px;border:1px solid "
    "var(--line);border-radius:8px;background:var(--ground)}\n",
    ".tile dt{color:var(--soft);font-size:13px}\n",
    ".tile dd{margin:0;font-size:20px;font-weight:620;font-variant-numeric:tabular-nums}\n",
    ".tile dd.note{color:var(--soft);font-size:12px;font-weight:400;line-height:1.35}\n",
    "nav{display:flex;flex-wrap:wrap;gap:6px 16px;font-size:14px}\n",
    "a{color:var(--c0);text-decoration:none}\n",
    "a:hover,a:focus{text-decoration:underline}\n",
    ":focus-visible{outline:2px solid var(--c0);outline-offset:2px}\n",
    ".run{display:inline-block;min-width:1.6em;padding:0 "
    ".4em;border-radius:5px;color:var(--bg);text-align:center}\n",
    ".r0{background:var(--c0)}.r1{background:var(--c1)}\n",
    ".plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,430px),1fr));gap:"
    "20px "
    "28px}\n",
    "@media (min-width:1000px){.wide{grid-column:span 2}}\n",
    "figure{margin:0}\n",
    "figcaption{font-size:13px;color:var(--soft)}\n",
    "figcaption b{color:var(--ink);font-size:14px}\n",
    ".unit{margin-right:8px}\n",
    ".key{margin-left:10px;white-space:nowrap}\n",
    ".key::before{content:'';display:inline-block;width:16px;margin-right:5px;vertical-align:"
    "middle;"
    "border-top:2px solid currentColor}\n",
    ".key.dashed::before{border-top-style:dashed}\n",
    ".key.dots::before{width:8px;height:8px;border:0;border-radius:4px;background:currentColor}\n",
    ".k0{color:var(--c0)}.k1{color:var(--c1)}.k2{color:var(--c2)}.k3{color:var(--c3)}\n",
    "svg{display:block;width:100%;height:auto}\n",
    "svg text{fill:var(--soft);font-size:11px;font-family:inherit}\n",
    ".plot{max-width:760px;min-width:0}\n",
    ".tick.y{text-anchor:end}.tick.x,.phase{text-anchor:middle}.tick.last{text-anchor:end}\n",
    ".axis{stroke:var(--soft)}.grid{stroke:var(--line)}\n",
    ".edge{stroke:var(--soft);stroke-dasharray:2 3}\n",
    ".span0{fill:var(--span)}.span1{fill:var(--bg)}\n",
    ".line{fill:none;stroke-width:1.6;stroke-linejoin:round}\n",
    ".line.dashed{stroke-dasharray:5 4}\n",
    ".line.c0{stroke:var(--c0)}.line.c1{stroke:var(--c1)}.line.c2{stroke:var(--c2)}"
    ".line.c3{stroke:var(--c3)}\n",
    ".dot{stroke:var(--bg)}\n",
    ".dot.c0{fill:var(--c0)}.dot.c1{fill:var(--c1)}.dot.c2{fill:var(--c2)}.dot.c3{fill:var(--c3)}"
    "\n",
    ".box{max-width:100%;width:fit-content;overflow:auto;margin:0 0 16px;border:1px solid "
    "var(--line);border-radius:8px}\n",
    "table{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;min-width:min("
    "100%,560px)}\n",
    "caption{padding:8px 12px;text-align:left;color:var(--soft);font-size:13px}\n",
    "th,td{padding:5px 12px;border-top:1px solid "
    "var(--line);text-align:left;white-space:nowrap;font-weight:400}\n",
    "thead th,thead td{border-top:0;border-bottom:1px solid "
    "var(--line);color:var(--soft);background:var(--ground)}\n",
    "th.n,td.n{text-align:right}\n",
    "td.code{white-space:normal;min-width:150px;font-family:ui-monospace,'DejaVu Sans "
    "Mono',monospace;font-size:12px}\n",
    "tr:has(td.code) th{white-space:normal;min-width:96px}\n",
    "td.float{color:var(--c1)}\n",
    "pre{margin:0;padding:12px;font:12px/1.5 ui-monospace,'DejaVu Sans "
    "Mono',monospace;overflow-wrap:normal}\n",
    "details{margin:0 0 16px}\n",
    "summary{cursor:pointer;margin-bottom:8px;color:var(--c0)}\n",
    ".bar-cell{min-width:120px}\n",
    ".meter{display:inline-block;height:8px;margin-right:8px;border-radius:2px;background:var(--c0)"
    ";"
    "opacity:.75}\n",
    ".meter.low{background:var(--c1)}\n",
    ".cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,300px),1fr));"
    "gap:16px;align-items:start}\n",
    ".card .plot svg text{font-size:16px}\n",
    ".card{padding:12px;border:1px solid var(--line);border-radius:8px;min-width:0}\n",
    ".bar{fill:var(--c0);opacity:.85}.bar.out{fill:var(--bad);opacity:1}\n",
    ".codes{fill:var(--codes)}.code-grid{stroke:var(--soft);fill:none}\n",
    ".matrix{max-width:640px;margin-bottom:16px}.matrix svg{border:1px solid var(--line)}\n",
    ".confusion td,.confusion th{padding:4px 7px}\n",
    ".samples{display:grid;grid-template-columns:repeat(auto-fill,minmax(132px,1fr));gap:16px}\n",
    ".sample img{display:block;width:112px;height:112px;margin-bottom:6px;object-fit:contain;"
    "image-rendering:pixelated;border:1px solid var(--line);border-radius:6px;background:#000}\n",
    ".no-image{display:block;width:112px;height:112px;line-height:112px;text-align:center;border:"
    "1px "
    "dashed var(--line)}\n",
    ".graph{width:auto;max-height:720px}\n",
    ".graph svg{width:auto;margin:0 auto}\n",
    ".graph text{fill:var(--ink);text-anchor:middle}\n",
    ".graph .small{fill:var(--soft);font-size:10px}\n",
    ".node{fill:var(--ground);stroke:var(--line)}\n",
    ".node.weights{stroke:var(--c0);stroke-width:1.4}\n",
    ".node.island{fill:none;stroke:var(--c1);stroke-width:1.6;stroke-dasharray:5 3}\n",
    ".node.border{stroke:var(--c2)}\n",
    ".edge-line{fill:none;stroke:var(--soft);stroke-width:1.2}\n",
    ".head{fill:var(--soft)}\n",
    ".edge-line.float{stroke:var(--c1);stroke-dasharray:4 3}\n",
    ".s1{--a:.12}.s2{--a:.22}.s3{--a:.32}.s4{--a:.42}.s5{--a:.52}.s6{--a:.64}.s7{--a:.76}\n",
    ".hit{background:rgba(var(--yes),var(--a,0));fill:rgba(var(--yes),var(--a,0))}\n",
    ".miss{background:rgba(var(--no),var(--a,0));fill:rgba(var(--no),var(--a,0))}\n",
    "@media (max-width:560px){svg text{font-size:13px}.histogram svg text{font-size:11px}.card "
    ".plot svg text{font-size:16px}"
    ".graph svg text{font-size:11px}h1{font-size:24px}}\n",
    "@media print{body{max-width:none;padding:0;font-size:11px}nav{display:none}"
    ".box,.graph{max-height:none;overflow:visible}section{break-inside:auto}"
    "figure,.card,tr{break-inside:avoid}th,td{white-space:normal;padding:2px 5px}}\n",
};

void oct_html_style(oct_html *html)
{
    for (size_t i = 0; i < OCT_COUNT(rules) && html->status == OCT_OK; i++)
        html->status = oct_text_add(&html->text, "%s", rules[i]);
}
