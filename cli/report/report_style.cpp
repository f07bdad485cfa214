#include "cli/report/report_style.h"

namespace pushpull {
namespace {

// Eight colours for strategies, distinguishable with all common kinds of colour blindness, with a
// contrast of at least 3 against the card behind them. s0 to s7 are strategies, p0 to p3 the parts
// of a step.
constexpr std::string_view kStyle = R"css(
:root{color-scheme:light dark;
--page:#f4f5f7;--card:#fff;--text:#1b1f24;--soft:#5a6472;--rule:#dfe3e8;--grid:#e7eaee;--head:#f8f9fb;
--accent:#0b5cad;--bad:#b3261e;--badback:#fdecea;--noteback:#fff6df;--noteline:#b07900;
--s0:#0072b2;--s1:#e8650a;--s2:#00966d;--s3:#7123e7;--s4:#835521;--s5:#60295d;--s6:#262697;--s7:#1a3d28;
--p0:#46535f;--p1:#1b659b;--p2:#c26a12;--p3:#5096c4}
@media (prefers-color-scheme:dark){:root{
--page:#121418;--card:#1b1e24;--text:#e8eaed;--soft:#a3adba;--rule:#343a44;--grid:#2b3039;--head:#20242b;
--accent:#7cb8ff;--bad:#ff8a80;--badback:#3a1c1c;--noteback:#332a13;--noteline:#d6a53a;
--s0:#56b4e9;--s1:#ff8c42;--s2:#25c08d;--s3:#a184f5;--s4:#f2e28a;--s5:#ee4fae;--s6:#ebebeb;--s7:#f0525f;
--p0:#8d99a6;--p1:#3b87bd;--p2:#e39a45;--p3:#9bd0f0}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--text);font:15px/1.5 system-ui,sans-serif;
overflow-wrap:anywhere}
main{max-width:1240px;margin:0 auto;padding:28px 24px 64px}
header h1{font-size:26px;line-height:1.2;margin:0 0 6px;letter-spacing:-.01em}
header p{margin:0;color:var(--soft)}
h2{font-size:20px;line-height:1.3;margin:44px 0 4px;letter-spacing:-.005em}
h3{font-size:16px;margin:28px 0 8px}
h4{font-size:15px;margin:22px 0 8px}
h2+p.lead{margin:0 0 14px;color:var(--soft);max-width:75ch}
p{max-width:85ch}
ul{padding-left:20px;max-width:85ch}
li{margin:5px 0}
a{color:var(--accent)}
nav{margin:16px 0 0;display:flex;flex-wrap:wrap;gap:4px 18px;font-size:14px}
nav a{text-decoration:none}
nav a:hover{text-decoration:underline}
.cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,260px),1fr));gap:14px;margin:22px 0 0}
.card,figure,.scroll,pre,dl{background:var(--card);border:1px solid var(--rule);border-radius:10px}
.card{padding:14px 18px}
.card h3{margin:0;font-size:13px;font-weight:500;color:var(--soft)}
.card p{margin:2px 0 0;font-size:13.5px;color:var(--soft)}
.card b{color:var(--text)}
.card .big{font-size:20px;font-weight:650;color:var(--text);margin:4px 0 2px}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,350px),1fr));gap:14px}
figure{margin:0;padding:12px 14px 10px;min-width:0}
figcaption{display:flex;flex-wrap:wrap;gap:0 10px;align-items:baseline;margin:0 0 8px;line-height:1.35}
figcaption b{font-size:14px}
figcaption span{font-size:12.5px;color:var(--soft)}
svg.chart{display:block;width:100%;height:auto;max-width:560px;margin:0 auto;overflow:visible}
svg text{font-size:12px;fill:var(--soft);font-variant-numeric:tabular-nums}
svg .end{text-anchor:end}
svg .mid{text-anchor:middle}
svg .strong{fill:var(--text)}
svg .sign{font-size:15px;font-weight:700;fill:var(--c)}
.grid{stroke:var(--grid);stroke-width:1}
.axis{stroke:var(--soft);stroke-width:1}
.rule{stroke:var(--text);stroke-width:1;stroke-dasharray:3 4;opacity:.75}
.line{fill:none;stroke:var(--c);stroke-width:1.9;stroke-linejoin:round;stroke-linecap:round}
.line.again{stroke-dasharray:6 4}
.band{fill:var(--c);opacity:.14}
.dot{fill:var(--c);stroke:var(--card);stroke-width:1}
.bar{fill:var(--c)}
.bar.again{fill-opacity:.45;stroke:var(--c)}
.whisker{fill:none;stroke:var(--text);stroke-width:1.2}
.ideal{--c:var(--soft);stroke-dasharray:2 5}
.s0{--c:var(--s0)}.s1{--c:var(--s1)}.s2{--c:var(--s2)}.s3{--c:var(--s3)}
.s4{--c:var(--s4)}.s5{--c:var(--s5)}.s6{--c:var(--s6)}.s7{--c:var(--s7)}
.p0{--c:var(--p0)}.p1{--c:var(--p1)}.p2{--c:var(--p2)}.p3{--c:var(--p3)}
.chip{display:inline-flex;align-items:center;gap:7px}
.chip::before{content:"";flex:none;width:11px;height:11px;border-radius:3px;background:var(--c)}
.chip.again::before{background:none;border:3px dashed var(--c)}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:4px 0 6px;padding:7px 0;font-size:14px;max-width:none;
position:sticky;top:0;z-index:2;background:var(--page)}
.scroll{overflow-x:auto;margin:10px 0;max-width:100%}
table{border-collapse:collapse;width:100%;font-size:14px;line-height:1.35;font-variant-numeric:tabular-nums;
overflow-wrap:normal}
th,td{padding:7px 12px;text-align:left;vertical-align:top;border-bottom:1px solid var(--rule)}
tbody tr:last-child>*{border-bottom:0}
tbody th{font-weight:500;white-space:nowrap}
thead th{background:var(--head);font-size:13px;font-weight:600;vertical-align:bottom;white-space:nowrap}
small{display:block;font-size:12px;font-weight:400;color:var(--soft)}
td small{white-space:nowrap}
.n{text-align:right;white-space:nowrap}
.none{color:var(--soft)}
.best{font-weight:700}
tr.group>*{background:var(--head);font-size:13px;font-weight:600;padding-top:6px;padding-bottom:6px}
th:first-child{position:sticky;left:0;background:var(--card);z-index:1}
thead th:first-child,tr.group th:first-child{background:var(--head)}
td.won{background:color-mix(in srgb,var(--c) 16%,transparent)}
.maps{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:0 16px}
.maps>div{min-width:0}
.bad{color:var(--bad);font-weight:600}
.bad small{color:inherit}
.why{min-width:280px}
.caption{font-size:13px;color:var(--soft);margin:4px 0 0}
.warning{background:var(--noteback);border-left:4px solid var(--noteline);border-radius:6px;
padding:10px 14px;margin:14px 0 0}
.warning.loud{background:var(--badback);border-color:var(--bad)}
.warning ul{margin:6px 0 0}
pre{padding:12px 14px;overflow-x:auto;margin:8px 0;font:13px/1.5 ui-monospace,monospace;white-space:pre;
overflow-wrap:normal;max-width:100%}
code{font:12.5px/1.5 ui-monospace,monospace}
.hash{white-space:nowrap}
pre.wrap{white-space:pre-wrap;overflow-wrap:anywhere}
h4 small{display:inline;margin-left:8px;font-size:13px}
dl{display:grid;grid-template-columns:max-content 1fr;gap:0;margin:12px 0;padding:6px 16px;font-size:14px}
dt,dd{margin:0;padding:6px 0;border-bottom:1px solid var(--rule);min-width:0}
dt{color:var(--soft);padding-right:20px}
dl>:nth-last-child(-n+2){border-bottom:0}
details{margin:12px 0}
summary{cursor:pointer;font-size:14px;color:var(--accent);padding:4px 0}
details.link>summary{font-size:17px;font-weight:600}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
@media (max-width:640px){
main{padding:18px 10px 40px}
header h1{font-size:22px}
h2{margin-top:34px}
figure{padding:10px 8px 8px}
th,td{padding:6px 9px}
dl{grid-template-columns:1fr;padding:4px 12px}
dt{border-bottom:0;padding-bottom:0}
dl>:nth-last-child(2){padding-top:6px}
}
@media print{body{background:none}figure,tr,.card{break-inside:avoid}.scroll{overflow:visible}}
)css";

}  // namespace

std::string_view report_style() { return kStyle; }

}  // namespace pushpull
