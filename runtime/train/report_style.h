// The style sheet of reports.
#pragma once

namespace etr::train {

// Stands before plot::page_style(), whose colours --p1 and so on it uses. The contrast of text with
// its background is at least 4.5 : 1, light and dark.
constexpr const char* kReportStyle = R"(
:root{color-scheme:light dark;--page:#f4f6f9;--card:#fff;--text:#1d2733;--quiet:#566375;--rule:#e6eaf0}
@media(prefers-color-scheme:dark){:root{--page:#12171e;--card:#1b222c;--text:#e7ecf3;--quiet:#a3b0c2;--rule:#2b3541}}
*{box-sizing:border-box}
body{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;color:var(--text);background:var(--page);margin:0}
main{max-width:1240px;margin:0 auto;padding:40px 24px 56px}
h1{font-size:30px;line-height:1.2;margin:0 0 8px;letter-spacing:-.01em;overflow-wrap:anywhere}
h2{font-size:16px;line-height:1.3;margin:0 0 2px}
.lead{font-size:19px;color:var(--quiet);margin:0 0 24px}.lead b{color:var(--p1)}
section,table{background:var(--card);border-radius:12px;box-shadow:0 1px 3px rgba(0,0,0,.12)}
table{width:100%;border-collapse:collapse;margin:24px 0;font-variant-numeric:tabular-nums}
caption,.hidden{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
th,td{padding:11px 16px;text-align:right;font-weight:400}th:first-child{text-align:left}
thead th{font-size:13px;color:var(--quiet);font-weight:600;vertical-align:bottom;border-bottom:1px solid var(--rule)}
tbody tr+tr>*{border-top:1px solid var(--rule)}tbody th{font-weight:600;overflow-wrap:anywhere;min-width:13em}
.swatch{width:28px;height:14px;margin-right:8px;vertical-align:middle}
.charts{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,340px),1fr));gap:20px}
section{padding:16px 14px 10px}
footer{margin-top:28px;font-size:13px;color:var(--quiet)}
@media(max-width:820px){main{padding:24px 14px 40px}h1{font-size:24px}.lead{font-size:17px}
table,tbody,tr,td,tbody th{display:block}thead{display:none}tr{padding:10px 0}tbody tr+tr>*{border:0}
tbody tr+tr{border-top:1px solid var(--rule)}tbody th,td{padding:4px 16px}
td{display:flex;justify-content:space-between;gap:16px}td::before{content:attr(data-label);color:var(--quiet)}}
@media print{body{background:#fff}section{break-inside:avoid}}
)";

}  // namespace etr::train
