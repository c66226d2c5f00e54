// The style sheet of reports.
#pragma once

namespace etr::train {

// The colours' contrast with their background is at least 4.5 : 1 for text and 3 : 1 for lines,
// light and dark.
constexpr const char* kReportStyle = R"(
:root{color-scheme:light dark;--page:#f4f6f9;--card:#fff;--text:#1d2733;--quiet:#566375;--rule:#e6eaf0;--axis:#b9c3d0;
--s0:#5b6b82;--s1:#d9480f;--s2:#0f8a7a;--s3:#8a4fbf;--s4:#96730a;--s5:#2f6fd0}
@media(prefers-color-scheme:dark){:root{--page:#12171e;--card:#1b222c;--text:#e7ecf3;--quiet:#a3b0c2;--rule:#2b3541;
--axis:#4a586b;--s0:#9fb0c8;--s1:#ff8a57;--s2:#3fc9b4;--s3:#c39bf0;--s4:#e0bd4d;--s5:#7fb0ff}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--text);background:var(--page);margin:0}
main{max-width:1240px;margin:0 auto;padding:40px 24px 56px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:16px;line-height:1.3;margin:0 0 2px}
.lead{font-size:19px;color:var(--quiet);margin:0 0 24px}.lead b{color:var(--s1)}
section,table{background:var(--card);border-radius:12px;box-shadow:0 1px 3px rgba(0,0,0,.12)}
table{width:100%;border-collapse:collapse;margin:24px 0;font-variant-numeric:tabular-nums}
caption,.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th,td{padding:11px 16px;text-align:right;font-weight:400}th:first-child{text-align:left}
thead th{font-size:13px;color:var(--quiet);font-weight:600;vertical-align:bottom;border-bottom:1px solid var(--rule)}
tbody tr+tr>*{border-top:1px solid var(--rule)}tbody th{font-weight:600;overflow-wrap:anywhere;min-width:13em}
.swatch{width:26px;height:8px;margin-right:8px;vertical-align:middle}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:20px}
section{padding:16px 14px 10px}section>svg{width:100%;height:auto;display:block;font-family:inherit}
.legend{display:flex;flex-wrap:wrap;gap:0 16px;margin:0 0 4px;padding:0;list-style:none;font-size:13px;color:var(--quiet)}
.legend li{overflow-wrap:anywhere}
.tick{font-size:12px;fill:var(--quiet)}.grid{stroke:var(--rule)}.axis{stroke:var(--axis)}
.target{stroke:var(--text);stroke-dasharray:5 5;opacity:.6}
.line{fill:none;stroke-width:2.25;stroke-linejoin:round}.area{opacity:.14}
.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}.line.s2{stroke:var(--s2);stroke-dasharray:7 3}
.line.s3{stroke:var(--s3);stroke-dasharray:2 3}.line.s4{stroke:var(--s4);stroke-dasharray:10 3 2 3}
.line.s5{stroke:var(--s5);stroke-dasharray:4 4}
.area.s0,.mark.s0{fill:var(--s0)}.area.s1,.mark.s1{fill:var(--s1)}.area.s2,.mark.s2{fill:var(--s2)}
.area.s3,.mark.s3{fill:var(--s3)}.area.s4,.mark.s4{fill:var(--s4)}.area.s5,.mark.s5{fill:var(--s5)}
footer{margin-top:28px;font-size:13px;color:var(--quiet)}
@media(max-width:820px){main{padding:24px 14px 40px}h1{font-size:24px}.lead{font-size:17px}
table,tbody,tr,td,tbody th{display:block}thead{display:none}tr{padding:10px 0}tbody tr+tr>*{border:0}
tbody tr+tr{border-top:1px solid var(--rule)}tbody th,td{padding:4px 16px}
td{display:flex;justify-content:space-between;gap:16px}td::before{content:attr(data-label);color:var(--quiet)}}
@media print{body{background:#fff}section{break-inside:avoid}}
)";

}  // namespace etr::train
