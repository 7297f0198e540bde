// SPDX-License-Identifier: Apache-2.0
#include "harness/report/page.h"

namespace gpushare::harness::report {

// Okabe and Ito's palette, whose colours remain distinguishable with every common colour blindness: darker ones on light pages,
// lighter ones on dark pages; the sixth differs in lightness. Lines also differ in dash, marks in shape, and all are labelled.
const char kPageStyle[] = R"css(
:root {
  color-scheme: light dark;
  --page: #ffffff; --raised: #f6f8fa; --text: #1c1e21; --faint: #57606a; --rule: #d8dee4;
  --k0: #0072b2; --k1: #c44f00; --k2: #00795a; --k3: #a5457e; --k4: #1c1e21; --k5: #6b4600;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0d1117; --raised: #161b22; --text: #e6edf3; --faint: #9ea7b3; --rule: #30363d;
    --k0: #56b4e9; --k1: #e69f00; --k2: #2fc39a; --k3: #e48fc0; --k4: #f0e442; --k5: #ffffff;
  }
}
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1240px; padding: 16px; background: var(--page); color: var(--text);
       font: 16px/1.5 system-ui, 'DejaVu Sans', sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0 0 .5rem; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .25rem; padding-top: .5rem; border-top: 2px solid var(--rule); }
h3 { font-size: 1.1rem; margin: 1.75rem 0 .5rem; }
p { margin: .25rem 0 .75rem; }
a { color: var(--k0); }
code { font-size: .85em; color: var(--faint); }
.faint { color: var(--faint); }
nav ul { display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; margin: .5rem 0; padding: 0; }
.from { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 12px; }
.from dl { display: grid; grid-template-columns: max-content 1fr; gap: 0 .75rem; margin: 0; padding: 10px 12px;
           background: var(--raised); border-radius: 6px; font-size: .875rem; }
.from dt { color: var(--faint); }
.from dd { margin: 0; }
.told { margin: .75rem 0; padding: 0; list-style: none; }
.told li { margin: .4rem 0; padding-left: .75rem; border-left: 4px solid var(--ink, var(--rule)); }
.told b { color: var(--ink, inherit); }
.wide { overflow-x: auto; margin: .5rem 0 1rem; }
table { border-collapse: collapse; font-size: .875rem; line-height: 1.35; }
th, td { padding: 4px 12px 4px 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--rule);
         overflow-wrap: normal; }
th.n, td.n { text-align: right; padding-left: 12px; }
td.n { font-variant-numeric: tabular-nums; white-space: nowrap; }
thead th { min-width: 3.2rem; max-width: 14rem; overflow-wrap: anywhere; vertical-align: bottom; }
thead th.n { min-width: 7rem; }
tbody th { font-weight: normal; min-width: 8.5rem; max-width: 24rem; overflow-wrap: anywhere; }
td.none { color: var(--faint); font-style: italic; white-space: normal; }
.case { content-visibility: auto; contain-intrinsic-size: auto 1500px; }
.plots { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 330px), 1fr)); gap: 16px 24px;
         margin: 0 0 20px; }
figure { margin: 0; min-width: 0; }
figcaption { font-size: .875rem; line-height: 1.35; margin: 0 0 6px; }
svg { display: block; width: 100%; max-width: 480px; height: auto; }
svg text { fill: var(--text); font-size: 11px; }
svg .tick { fill: var(--faint); font-size: 10px; }
svg .head { font-weight: 600; }
svg .name { fill: var(--ink); }
.grid { stroke: var(--rule); stroke-width: 1; }
.axis { stroke: var(--faint); stroke-width: 1; }
.asked { stroke: var(--text); stroke-width: 2; }
.wanted { stroke: var(--ink); stroke-width: 1; stroke-dasharray: 1 4; }
.line { fill: none; stroke: var(--ink); stroke-width: 1.6; stroke-linejoin: round; }
.range { stroke: var(--ink); stroke-width: 3; stroke-opacity: .45; }
.whisker { stroke: var(--text); stroke-width: 1.5; }
.bar { fill: var(--ink); fill-opacity: .75; }
.band { fill: var(--ink); fill-opacity: .18; }
.mark { fill: var(--ink); stroke: var(--page); stroke-width: 1; }
.c0 { --ink: var(--k0); } .c1 { --ink: var(--k1); } .c2 { --ink: var(--k2); } .c3 { --ink: var(--k3); }
.c4 { --ink: var(--k4); } .c5 { --ink: var(--k5); } .cn { --ink: var(--faint); }
.d1 { stroke-dasharray: 7 2; } .d2 { stroke-dasharray: 2 2; } .d3 { stroke-dasharray: 8 2 2 2; }
.d4 { stroke-dasharray: 11 4; } .d5 { stroke-dasharray: 4 4; } .dn { stroke-dasharray: 1 3; }
@media (max-width: 600px) {
  /* Names stay where they are while the figures are moved, and have the units. */
  th.u, td.u { display: none; }
  tbody th { position: sticky; left: 0; background: var(--page); min-width: 7.5rem; max-width: 9.5rem; }
  tbody th[data-unit]::after { content: ', ' attr(data-unit); color: var(--faint); }
  thead th.n { min-width: 5.5rem; }
}
@media print { .case { content-visibility: visible; } }
)css";

}  // namespace gpushare::harness::report
