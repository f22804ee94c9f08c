#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes tests/text/goldens/steps.jsonl: each step of a tokenizer.json by itself, with
the results of the Hugging Face library (Python package `tokenizers`).

    python3 tests/parity/tokenizer_steps.py tests/text/goldens/steps.jsonl
"""
import json
import os
import sys

# The folder has a file of the library's name.
sys.path = [p for p in sys.path if os.path.abspath(p or ".") != os.path.dirname(os.path.abspath(__file__))]
from tokenizers import Tokenizer  # noqa: E402

rows=[]
def full(**k):
    d={"version":"1.0","truncation":None,"padding":None,"added_tokens":[],"normalizer":None,"pre_tokenizer":None,"post_processor":None,"decoder":None,
       "model":{"type":"WordLevel","vocab":{"?":0},"unk_token":"?"}}
    d.update(k); return d
def put(k,s,t,o): rows.append({"k":k,"s":s,"t":t,"o":o})
def norm(s,*texts):
    tk=Tokenizer.from_str(json.dumps(full(normalizer=s)))
    for t in texts: put("normalizer",s,t,tk.normalizer.normalize_str(t))
def pre(s,*texts):
    tk=Tokenizer.from_str(json.dumps(full(pre_tokenizer=s)))
    for t in texts:
        e=tk.encode(t,add_special_tokens=False)
        put("pre_tokenizer",s,t,[t[a:b] for a,b in e.offsets])
def dec(s,*lists):
    tk=Tokenizer.from_str(json.dumps(full(decoder=s)))
    for l in lists:
        try: put("decoder",s,l,tk.decoder.decode(l))
        except BaseException as e: print("skip",s,l)
def model(m,*texts,**k):
    tk=Tokenizer.from_str(json.dumps(full(model=m,**k)))
    for t in texts: put("whole",full_min(m,k),t,tk.encode(t).ids)
def full_min(m,k):
    d=dict(k); d["model"]=m; return d
S=lambda p,b="Isolated",i=False: {"type":"Split","pattern":p,"behavior":b,"invert":i}
R=lambda r,b="Isolated",i=False: S({"Regex":r},b,i)
# --- normalizers
norm({"type":"NFC"},"e\u0301 \u212b","\u1100\u1161\u11a8\u11a8")
norm({"type":"NFD"},"\u00e9\uac01\u1e69 a\u0323\u0301","a\u0301\u0323")
norm({"type":"NFKC"},"\ufb01\u2460 \u00bd \uff21e\u0301")
norm({"type":"NFKD"},"\ufb01\u00e9\u2460 \u3300")
norm({"type":"StripAccents"},"e\u0301\u00e9 \u0915\u093e\u0300x","\u0301\u0301a")
norm({"type":"Lowercase"},"A\u00c9Z[@\u0130\u1c89\ua7dc\U00010d50x\u01c5")
norm({"type":"Nmt"},"".join(map(chr,[0x61,1,8,9,0xa,0xb,0xc,0xd,0xe,0x1f,0x20,0x7e,0x7f,0x80,0x8e,0x8f,0x90,0x9f,0xa0,0x167f,0x1680,0x1681,0x200a,0x200b,0x200f,0x2010,0x2028,0x2029,0x2581,0x2582,0xfefe,0xfeff,0xfffd,0xfffc,0x62])))
norm({"type":"Strip","strip_left":True,"strip_right":True}," \u3000\ta b \n"," \t ","","a")
norm({"type":"Strip","strip_left":True,"strip_right":False}," a "," ")
norm({"type":"Strip","strip_left":False,"strip_right":True}," a ","  ")
norm({"type":"Prepend","prepend":"\u2581"},"ab","")
norm({"type":"Replace","pattern":{"String":"aa"},"content":"b"},"aaa caa","a","aa","caaaac")
norm({"type":"Replace","pattern":{"String":" "},"content":"\u2581"},"  a b ")
norm({"type":"Replace","pattern":{"String":"ab"},"content":""},"abab","xaby","a")
norm({"type":"Replace","pattern":{"Regex":"b+"},"content":"<>"},"abbc b","abc","bb","")
norm({"type":"Replace","pattern":{"Regex":"\\s+$"},"content":""},"a b  ")
for t in ("a\n","a","a\nb\n"): [norm({"type":"Replace","pattern":{"Regex":x},"content":"X"},t) for x in ("$","^","(?:^|$)")]
norm({"type":"ByteLevel"},"a\u00e9 \n")
norm({"type":"Sequence","normalizers":[{"type":"Replace","pattern":{"String":"a"},"content":"b"},{"type":"Prepend","prepend":"a"},{"type":"Lowercase"}]},"aA","")
for flags in ((1,1,1,1),(0,1,1,1),(1,0,0,0),(0,0,1,0),(0,0,0,1),(1,1,None,0),(0,0,None,1)):
    s={"type":"BertNormalizer","clean_text":bool(flags[0]),"handle_chinese_chars":bool(flags[1]),"strip_accents":None if flags[2] is None else bool(flags[2]),"lowercase":bool(flags[3])}
    norm(s,"\u00c9\u0301\t\u4e2dA\u0000\ufffdb\u00ad\u0007".replace("\x00",""))
cjk=[0x3400,0x4dbf,0x4e00,0x9fff,0x20000,0x2a6df,0x2a700,0x2b73f,0x2b740,0x2b81f,0x2b920,0x2ceaf,0xf900,0xfaff,0x2f800,0x2fa1f]
edge=[]
for i,c in enumerate(cjk): edge+= [c-1,c] if i%2==0 else [c,c+1]
norm({"type":"BertNormalizer","clean_text":False,"handle_chinese_chars":True,"strip_accents":False,"lowercase":False},"".join(map(chr,edge)))
# --- pre-tokenizers
for b in ("Isolated","Removed","MergedWithPrevious","MergedWithNext","Contiguous"):
    for i in (False,True):
        pre(R(r"-+",b,i),"a--b-","--","ab","-a-b")
    pre({"type":"Punctuation","behavior":b},"a.,b!","!!a")
    pre(S({"String":"."},b),"a..b.")
pre({"type":"Punctuation"},"a.,b!")
pre({"type":"Digits","individual_digits":True},"a12b\u00bd3")
pre({"type":"Digits","individual_digits":False},"a12b\u00bd3","12")
pre({"type":"Whitespace"},"a_1 b--c\u00e9\u0301!x  ")
pre({"type":"WhitespaceSplit"},"a  b\u3000c\u180ed\n")
pre({"type":"CharDelimiterSplit","delimiter":"\u00e9"},"a\u00e9b\u00ea\u00e9\u00e9c")
pre({"type":"FixedLength","length":2},"a\u00e9bc\U0001f600")
pre({"type":"FixedLength","length":5},"abcdefghij","abcd","abcdef")
pre({"type":"BertPreTokenizer"},"a b.c  !d")
pre({"type":"Sequence","pretokenizers":[{"type":"WhitespaceSplit"},{"type":"Digits","individual_digits":True},{"type":"Punctuation"}]},"a1 2.b")
pre({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"never","split":True},"a b  c"," a")
pre({"type":"Metaspace","replacement":"\u2581","prepend_scheme":"never","split":False},"a b  c")
pre({"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":True},"a b"," a")
for use in (True,False):
    pre({"type":"ByteLevel","add_prefix_space":False,"trim_offsets":False,"use_regex":use},"it's  12 \u00e9!")
def esc(pat,*texts): pre(R(pat),*texts)
esc(r"\w+","a_1\u00e9\u0301\u00b2-\u24b6 b\u203fc\u0660x")
esc(r"\W+","a_1\u00e9\u0301-- b")
esc(r"[\w.]+","a.b -c_")
esc(r"\b","ab cd")
esc(r"\bc","abc cd")
esc(r"\Bb","ab b")
esc(r"\d+","a12\u0660b")
esc(r"\D","12ab")
esc(r"\p{Lu}","aBC\u00c9")
esc(r"\P{Lu}","aBC")
esc(r"\p{^Lu}","aBC")
esc(r"\P{^Lu}","aBC")
esc(r"[\p{Lu}]+","aBCd")
esc(r"[\P{L}]+","a12b")
esc(r"[\p{^L}]+","a12b")
esc(r"[^\p{L}]+","a12b")
esc(r"\p{Han}+","a\u4e2d\u6587b\u3001")
esc(r"\P{Han}+","a\u4e2d\u6587b")
esc(r"\p{^Han}+","a\u4e2d\u6587b")
esc(r"[\p{Han}\p{Thai}]+","a\u4e2d\u0e01b")
esc(r"[\P{Han}]+","\u4e2dab\u4e2d")
for n,c in (("Arabic",0x628),("Armenian",0x531),("Bengali",0x995),("Cyrillic",0x431),("Devanagari",0x915),("Ethiopic",0x1200),("Georgian",0x10d0),("Greek",0x3b1),("Gujarati",0xa95),("Gurmukhi",0xa15),("Hangul",0xac00),("Hebrew",0x5d0),("Hiragana",0x3042),("Kannada",0xc95),("Katakana",0x30a2),("Khmer",0x1780),("Lao",0xe81),("Latin",0x62),("Malayalam",0xd15),("Mongolian",0x1820),("Myanmar",0x1000),("Oriya",0xb15),("Sinhala",0xd85),("Tamil",0xb95),("Telugu",0xc15),("Thaana",0x780),("Thai",0xe01),("Tibetan",0xf40)):
    esc(r"\p{%s}+"%n,"1"+chr(c)*2+"2")
esc("\\u00e9","a\u00e9b\u00ea")
esc(r"\x{e9}","a\u00e9b")
esc(r"[a\-z]+","xa-zb")
esc(r"[-a]+","xa-b")
esc(r"[^-a]+","xa-b")
esc(r"[a-c]+","xabcd")
esc(r"[\s]+","a \u180eb")
esc(r"[^\S]+","a \u3000b")
esc(r"\S+","a b")
esc(r"(?:ab)+|(?i:c)","ababC")
esc(r"a(?=b)","abac")
esc(r"a(?!b)","abac")
esc(r"(?<=b)a","baca")
esc(r"(?<!b)a","baca")
esc(r"(?>a+)b","aab")
esc(r"(a|b)c","acbcc")
esc(r"^a","a\nab","a\na")
esc(r"b$","ab\nb","b\n")
esc(r"\n$","a\n")
esc(r"^","a\nb\n")
esc(r"a{2}","aaaaa")
esc(r"a{1,2}?b?","aab")
esc(r"a*","baab\u00e9a")
esc(r".","a\nb\r")
esc(r"\.|\+|\\","a.b+c\\")
esc(r"\r|\t","a\rb\tc")
esc(r"[\r\n]+","a\r\nb")
esc(r".|\n","ab\n")
esc(r"[\s\S]","ab\n")
for ch in "\\^$.|?*+()[]{}": pre(S({"String":ch+"x"}),"a"+ch+"xb")
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
CL = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|%s| ?[^\s\p{L}\p{N}]+[\r\n]*"
          r"|\s*[\r\n]+|\s+(?!\S)|\s+")
hard=["a'","'","a'sb'S'Ll'lx'rx'vx'l'\u017fx'\u0160a","'l","'r","'v","'ve'vE'RE're"," ","  ","a  b","a   ","  \n \n a","\n\na"," \n","a\u3000 b","!!\n\nx"," !?\n"," 12345678 \u00bd","12 a1"," \u3000a","\t\ta\tb","\u00e9\u0301x\u200bb","-a --b \n\r\n-"," '' 's"]
for p in (GPT2,CL%r"\p{N}",CL%r"\p{N}{1,3}",CL%r"\p{N}+"):
    pre(R(p),*hard)
pre(R(CL%r"\p{N}","Removed",True),"a  b'll 12\n")
pre(R(CL%r"\p{N}","Removed",False),"a b")
# newer characters
esc(r"\p{L}+","1\u1c89\u1c8a\ua7cb\U000105c0\U00016d432","\u0897x\U0001e4d0")
esc(r"\p{Lu}+","x\u1c89\ua7cb\ua7ccx\ua7cd")
esc(r"\p{Mn}","a\u0897b\u0301")
esc(r"\p{Nd}+","a\U00010d40\U000116d0\U0001ccf91b")
esc(r"\p{Arabic}+","a\u0897\U00010ec2\U00010efcb")
esc(r"\p{Han}+","a\U0002b739\U0002ebf0\U00031350b")
esc(r"\p{Latin}+","1\ua7cb\ua7da\U0001df252")
esc(r"\p{Myanmar}+","a\U000116d0b\u1000")
esc(r"\p{P}+","a\u1b4e!b")
# --- decoders
dec({"type":"ByteLevel","add_prefix_space":True,"trim_offsets":True,"use_regex":True},["a","\u0120b\u00c3","\u00a9","\u00c3","x"],["\u00c3"],["a b\u3042","\u0120"])
dec({"type":"Replace","pattern":{"String":"__"},"content":" "},["a__b","_","_c","____"])
dec({"type":"Replace","pattern":{"Regex":"_+"},"content":"-"},["a__b_","c","__"])
dec({"type":"ByteFallback"},["<0xC3>","<0xA9>","a","<0xe2>","<0x82>","b","<0x+A>","<0x0>","<0xGG>","<0xC3"],["<0xff>","<0xFe>"],["<0x41>"],["<0xAC>","x"])
dec({"type":"Fuse"},["a"," b"])
for st,sp in ((1,0),(0,1),(2,1),(1,2)):
    dec({"type":"Strip","content":"_","start":st,"stop":sp},["___a___","_","__","b_","_c"])
    dec({"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Strip","content":"_","start":st,"stop":sp}]},["__","_a_","_b","__"],["_"],["____"])
for sc in ("always","first","never"):
    dec({"type":"Metaspace","replacement":"\u2581","prepend_scheme":sc,"split":True},["\u2581a\u2581","\u2581b","c\u2581\u2581d"])
dec({"type":"Metaspace","replacement":"\u2581"},["\u2581a","\u2581b"])
for cl in (True,False):
    dec({"type":"WordPiece","prefix":"##","cleanup":cl},["##a","##b","c","."," ?","!",",","n't","'m","x ' y","do not","'s","'ve","'re"," do not","a 's","b 've","c 're","d 'm e n't"])
dec({"type":"WordPiece","prefix":"@","cleanup":False},["a","@b","c"])
dec({"type":"BPEDecoder","suffix":"</w>"},["a","b</w>","c</w>d</w>","e</w>"],["a</w>"],["a"])
dec({"type":"BPEDecoder","suffix":"@"},["a@","b@"])
dec({"type":"Sequence","decoders":[{"type":"Replace","pattern":{"String":"\u2581"},"content":" "},{"type":"ByteFallback"},{"type":"Fuse"},{"type":"Strip","content":" ","start":1,"stop":0}]},["\u2581a","\u2581","<0xE2>","<0x82>","<0xAC>","b"])
dec({"type":"Sequence","decoders":[{"type":"ByteLevel","add_prefix_space":True,"trim_offsets":True,"use_regex":True},{"type":"Strip","content":"b","start":1,"stop":0}]},["b","ba"])
# --- keys that a file omits
def left(fn,s,keys,*texts):
    i=len(rows); fn(s,*texts)
    for r in rows[i:]:
        d=json.loads(json.dumps(r["s"]))
        for k in keys: d.pop(k)
        r["s"]=d
left(norm,{"type":"BertNormalizer","clean_text":True,"handle_chinese_chars":True,"strip_accents":None,"lowercase":True},["clean_text","handle_chinese_chars","strip_accents","lowercase"],"\u00c9\t\u4e2dA\u0007")
left(norm,{"type":"Strip","strip_left":False,"strip_right":False},["strip_left","strip_right"]," a ")
left(pre,{"type":"Punctuation","behavior":"Isolated"},["behavior"],"a!!b")
left(pre,{"type":"Digits","individual_digits":False},["individual_digits"],"a12b")
left(pre,{"type":"FixedLength","length":5},["length"],"abcdefghijkl")
left(pre,R("b","Isolated",False),["invert"],"abba")
left(pre,{"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":True},["prepend_scheme","split"],"a b")
left(pre,{"type":"ByteLevel","add_prefix_space":True,"trim_offsets":False,"use_regex":True},["add_prefix_space","trim_offsets","use_regex"],"it's 12")
left(dec,{"type":"WordPiece","prefix":"##","cleanup":True},["prefix","cleanup"],["a","##b","."])
left(dec,{"type":"BPEDecoder","suffix":"</w>"},["suffix"],["a</w>","b</w>"])
left(dec,{"type":"Metaspace","replacement":"_","prepend_scheme":"always","split":True},["prepend_scheme","split"],["_a","_b"])
# --- complete tokenizers: models
V={"?":0,"a":1,"b":2,"ab":3,"##a":4,"##b":5,"##ab":6}
WP={"type":"WordPiece","unk_token":"?","continuing_subword_prefix":"##","max_input_chars_per_word":100,"vocab":V}
ws={"type":"WhitespaceSplit"}
model(WP,"ab aab abab c ac abba","a"*100,"a"*101,pre_tokenizer=ws)
model(dict(WP,continuing_subword_prefix="",vocab={"?":0,"a":1,"ab":2,"b":3}),"abab ba bc",pre_tokenizer=ws)
r0=len(rows); model(WP,"abab","a"*100,"a"*101,pre_tokenizer=ws)
for r in rows[r0:]:
    r["s"]["model"]={k:v for k,v in WP.items() if k in("type","vocab","unk_token")}
model({"type":"WordLevel","unk_token":"?","vocab":{"?":3,"a":0}},"a b a",pre_tokenizer=ws)
B={"type":"BPE","dropout":None,"unk_token":None,"continuing_subword_prefix":None,"end_of_word_suffix":None,"fuse_unk":False,"byte_fallback":False,"ignore_merges":False,"vocab":{"a":0,"b":1,"ab":2,"c":3,"abc":4},"merges":[["a","b"],["ab","c"]]}
model(B,"abc axb cab x")
model(dict(B,unk_token="c",fuse_unk=True),"xxaxxxb")
model(dict(B,unk_token="c",fuse_unk=False),"xxaxxxb")
model(dict(B,end_of_word_suffix="</w>",vocab={"a":0,"b":1,"b</w>":2,"ab</w>":3,"ab":4,"a</w>":5},merges=[["a","b</w>"],["a","b"]]),"ab a b abab",pre_tokenizer=ws)
model(dict(B,continuing_subword_prefix="##",vocab={"a":0,"##b":1,"ab":2,"##a":3,"##ba":4,"b":5},merges=[["a","##b"],["##b","##a"]]),"ab aba bab",pre_tokenizer=ws)
model(dict(B,ignore_merges=True,vocab={"a":0,"b":1,"abb":2,"ab":3}, merges=[["a","b"]]),"abb ab abba",pre_tokenizer=ws)
model(dict(B,ignore_merges=False,vocab={"a":0,"b":1,"abb":2,"ab":3}, merges=[["a","b"]]),"abb ab abba",pre_tokenizer=ws)
BF={"<0x%02X>"%i:i for i in range(256)}; 
model(dict(B,byte_fallback=True,vocab=dict(a=0,**{"<0xC3>":1,"<0xA9>":2}),merges=[]),"a\u00e9ba",)
model(dict(B,byte_fallback=True,unk_token="?",vocab={"a":0,"<0xC3>":1,"?":2},merges=[]),"a\u00e9\u00c3a")
U={"type":"Unigram","unk_id":0,"byte_fallback":False,"vocab":[["<unk>",0.0],["a",-1.0],["ab",-1.5],["b",-1.0],["abb",-3.0]]}
model(U,"abb","abab","xxab","axxb","xax")
model(dict(U,vocab=[["<unk>",0.0],["a",-1.0],["b",-30.0],["\u00e9",-2.0]]),"ab\u00e9x\u00e9")
model(dict(U,byte_fallback=True,vocab=U["vocab"]+[["<0xC3>",0.0],["<0xA9>",0.0]]),"a\u00e9b","a\u00eab")
# added tokens
def at(i,c,**f):
    d={"id":i,"content":c,"special":False,"lstrip":False,"rstrip":False,"single_word":False,"normalized":False}; d.update(f); return d
W={"type":"WordLevel","unk_token":"?","vocab":{"?":0,"a":1,"b":2}}
ch=R("[\\s\\S]")
model(W,"a \t<l> b","<l>a","x<l>",added_tokens=[at(3,"<l>",lstrip=True)],pre_tokenizer=ch)
model(W,"a<r> \n b","<r>",added_tokens=[at(3,"<r>",rstrip=True)],pre_tokenizer=ch)
model(W,"aww ww bw ww.","ww","\u00e9ww","ww\u00e9 _ww ww1",added_tokens=[at(3,"ww",single_word=True)],pre_tokenizer=ch)
model(W,"aXbxa",added_tokens=[at(3,"X",normalized=True)],normalizer={"type":"Lowercase"},pre_tokenizer=ch)
model(W,"aXbxa",added_tokens=[at(3,"X",normalized=False)],normalizer={"type":"Lowercase"},pre_tokenizer=ch)
model(W,"<<x>><x>",added_tokens=[at(3,"<x>"),at(4,"<<x>>"),at(5,"<<")],pre_tokenizer=ch)
model(W,"<ab<abc<abd<a",added_tokens=[at(3,"<a"),at(4,"<abc"),at(5,"<abd"),at(6,"<ab")],pre_tokenizer=ch)
model(W,"a<l> <r> b <l><r>",added_tokens=[at(3,"<l>",lstrip=True),at(4,"<r>",rstrip=True)],pre_tokenizer=ch)
# post
P=lambda *s,**sp: {"type":"TemplateProcessing","single":[({"Sequence":{"id":"A","type_id":0}} if x=="A" else {"SpecialToken":{"id":x,"type_id":0}}) for x in s],"pair":[{"Sequence":{"id":"A","type_id":0}},{"Sequence":{"id":"B","type_id":0}}],"special_tokens":{k:{"id":k,"ids":v,"tokens":[k]*len(v)} for k,v in sp.items()}}
model(W,"a",post_processor=P("A"),pre_tokenizer=ch)
model(W,"a",post_processor=P("x","A","y","x",x=[2],y=[0,1]),pre_tokenizer=ch)
model(W,"a",post_processor={"type":"BertProcessing","sep":["b",2],"cls":["?",0]},pre_tokenizer=ch)
model(W,"a",post_processor={"type":"RobertaProcessing","sep":["b",2],"cls":["?",0],"trim_offsets":True,"add_prefix_space":True},pre_tokenizer=ch)
model(W,"a",post_processor={"type":"Sequence","processors":[{"type":"ByteLevel","add_prefix_space":True,"trim_offsets":True,"use_regex":True},P("x","A",x=[2])]},pre_tokenizer=ch)
with open(sys.argv[1],"w") as f:
    for r in rows: f.write(json.dumps(r,ensure_ascii=False,separators=(",",":"))+"\n")
print(len(rows))
