// SPDX-License-Identifier: MIT
#pragma once

#include <string_view>

/// The fixed parts of a report page. Contrast of every text on its ground is at least 4.5 in both themes.
namespace attest::check {

inline constexpr std::string_view page_style = R"(
:root{color-scheme:light dark;--ground:#fdfdfc;--text:#1c1c1a;--soft:#55554f;--line:#d5d5cf;--panel:#f1f1ed;
--right:#1b6e35;--wrong:#a4161a;--undecided:#7a4b00}
@media(prefers-color-scheme:dark){:root{--ground:#131413;--text:#e6e6e2;--soft:#a9a9a2;--line:#3a3b39;
--panel:#1e1f1e;--right:#6fcf8b;--wrong:#ff8a80;--undecided:#ffc46b}}
body{margin:0;background:var(--ground);color:var(--text);font:16px/1.5 system-ui,sans-serif}
main{max-width:72rem;margin:0 auto;padding:1rem}
h1{margin:.3em 0;font-size:1.6rem;line-height:1.3}h1.right{color:var(--right)}h1.wrong{color:var(--wrong)}
h1.undecided{color:var(--undecided)}h2{font-size:1.2rem;margin:1.6em 0 .4em}h3{font-size:1rem;margin:1em 0 .2em}
code,pre,td{font-family:ui-monospace,monospace;font-size:.92em}.look{color:var(--soft)}
table{border-collapse:collapse;display:block;overflow-x:auto}th,td{border:1px solid var(--line);
padding:.25em .6em;text-align:left;vertical-align:top}pre{background:var(--panel);padding:.8em;overflow-x:auto}
.panels{display:flex;flex-wrap:wrap;gap:.8rem}figure{margin:0}figcaption{font-size:.85em;color:var(--soft)}
img{image-rendering:pixelated;background:var(--panel);border:1px solid var(--line);cursor:crosshair;display:block}
img:focus{outline:3px solid var(--soft)}.legend p{margin:.4em 0}
.scale{position:relative;max-width:30rem;height:2.2em;margin-right:2em}.scale img{width:100%;height:14px;cursor:default}
.scale span{position:absolute;left:0;top:16px;font-size:.85em;transform:translateX(-50%)}.scale img+span{transform:none}
.nan,.none{display:inline-block;width:1em;height:1em;vertical-align:-.1em;border:1px solid var(--line);
background:#00a86b}.none{background:var(--panel);margin-left:1em}
.reading{position:sticky;top:0;background:var(--panel);border:1px solid var(--line);padding:.4em .6em;
min-height:1.5em;font-family:ui-monospace,monospace;font-size:.92em}
@media print{.reading{display:none}}
)";

/// What a pixel stands for, where somebody points at it: the numbers if the page has them, or else how far
/// the error is, from the colour.
inline constexpr std::string_view page_script = R"JS(
(()=>{"use strict";
const shadeOf=new Map(colours.map((c,n)=>[c,n]));
const doubles=t=>{const s=atob(t),b=new Uint8Array(s.length);for(let n=0;n<s.length;++n)b[n]=s.charCodeAt(n);
return new Float64Array(b.buffer)};
const used=n=>n===255?"NaN or infinity in one alone":n===0?"not compared":n===1?"error at most 0.001 of the tolerance":
n<=100?"error about "+(10**((n-1)/99*3-3)).toPrecision(2)+" of the tolerance":
"error about "+(10**((n-101)/139*6)).toPrecision(2)+" times the tolerance";
for(const figure of document.querySelectorAll("figure img")){
const main=figure.closest("main"),say=t=>{main.querySelector("output").textContent=t};
const d=figure.dataset,queries=d.queries.split(","),block=+d.block,width=+d.width;
const columns=Math.ceil(width/block),lines=queries.length;let pixels=null,found=null,expected=null,x=0,y=0;
const load=()=>{if(pixels)return;const c=document.createElement("canvas");c.width=columns;c.height=lines;
const g=c.getContext("2d");g.drawImage(figure,0,0,columns,lines);pixels=g.getImageData(0,0,columns,lines).data;
if(d.found){found=doubles(d.found);expected=doubles(d.expected)}};
const show=()=>{load();const n=y*columns+x,p=4*n;
const shade=pixels[p+3]===0?0:shadeOf.get(pixels[p]<<16|pixels[p+1]<<8|pixels[p+2])??0;
const last=Math.min(width,(x+1)*block)-1;
const place=d.address+"["+queries[y]+(d.across===""?"":","+(block===1?x:x*block+" to "+last))+"]";
say(place+(found?" is "+found[n]+", should be "+expected[n]:"")+": "+used(shade))};
const move=(a,b)=>{x=Math.min(columns-1,Math.max(0,a));y=Math.min(lines-1,Math.max(0,b));show()};
figure.addEventListener("pointermove",e=>{const r=figure.getBoundingClientRect();
move(Math.floor((e.clientX-r.left)/r.width*columns),Math.floor((e.clientY-r.top)/r.height*lines))});
figure.addEventListener("pointerdown",()=>show());figure.addEventListener("focus",()=>show());
figure.addEventListener("keydown",e=>{const by={ArrowLeft:[-1,0],ArrowRight:[1,0],ArrowUp:[0,-1],ArrowDown:[0,1]}[e.key];
if(by){e.preventDefault();move(x+by[0],y+by[1])}})}})();
)JS";

}  // namespace attest::check
