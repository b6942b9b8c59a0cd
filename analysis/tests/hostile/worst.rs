//! Programs at the limits, in the forms that cost most.

use analysis::Limits;

/// A program at a limit.
pub(crate) struct Worst {
    /// The limit that it reaches.
    pub(crate) limit: &'static str,
    /// A description of its contents.
    pub(crate) shape: String,
    /// The program.
    pub(crate) source: String,
}

/// Returns programs at each limit; some of them are refused.
pub(crate) fn programs(limits: &Limits) -> Vec<Worst> {
    let mut made = Made { found: Vec::new(), bytes: limits.source_bytes };
    made.source_bytes();
    made.tokens(limits);
    made.depth(limits);
    made.chain(limits);
    made.tasks(limits);
    made.edges();
    made.rounds();
    made.values();
    made.broken();
    made.found
}

struct Made {
    found: Vec<Worst>,
    bytes: usize,
}

impl Made {
    fn add(&mut self, limit: &'static str, shape: impl Into<String>, source: String) {
        let shape = shape.into();
        assert!(source.len() <= self.bytes, "{limit}: {shape} has {} bytes", source.len());
        self.found.push(Worst { limit, shape, source });
    }

    /// Adds as many copies of a line as fit into the size limit.
    fn fill(&mut self, limit: &'static str, line: &str) {
        self.add(limit, line.trim(), line.repeat(self.bytes / line.len()));
    }

    /// Adds numbered lines between a head and a tail, as many as fit into the size limit.
    fn numbered(
        &mut self,
        limit: &'static str,
        shape: &str,
        (head, tail): (&str, &str),
        line: impl Fn(usize) -> String,
    ) {
        let mut source = head.to_owned();
        for at in 0.. {
            let next = line(at);
            if source.len() + next.len() + tail.len() > self.bytes {
                break;
            }
            source.push_str(&next);
        }
        source.push_str(tail);
        self.add(limit, shape, source);
    }

    /// 64 KiB of statements, names or members.
    fn source_bytes(&mut self) {
        for line in [
            "a;",
            "x=1\n",
            "let{}=a;",
            "f({a:1,b:[2]});",
            "`${1}`;",
            "class A{b(){}}\n",
            "()=>{};",
            "{a;}",
            "if(a){b}else{c}\n",
            "try{a}catch{b}finally{c}\n",
            "for(const a of b)c(a);",
            "switch(a){case 1:b}\n",
            "(a as B);",
            "({get a(){return 1}});",
            "async()=>{await a};",
            "/a/.b;",
            "\"\\u0061\";",
            "é=1;",
        ] {
            self.fill("source", line);
        }
        self.add("source", "one comment", format!("//{}", "x".repeat(self.bytes - 2)));
        self.add("source", "one string", format!("x=\"{}\"", "y".repeat(self.bytes - 4)));
        self.numbered("source", "let a0 = 0;", ("", ""), |at| format!("let a{at}=0;"));
        self.numbered("source", "var a0 = 0, in one block each", ("", ""), |at| {
            format!("{{var a{at}=0}}")
        });
        self.numbered("source", "a chain of copies", ("let a0=args;", ""), |at| {
            format!("let a{}=a{at};", at + 1)
        });
        self.numbered("source", "functions", ("", ""), |at| format!("function a{at}(){{}}"));
        self.numbered("source", "functions that call the next", ("", ""), |at| {
            format!("function a{at}(b){{return a{}(b)}}", at + 1)
        });
        self.numbered("source", "parameters", ("function f(", "){}f()"), |at| format!("a{at},"));
        self.numbered("source", "an object's names", ("const o={", "};o.a1"), |at| {
            format!("a{at}:{at},")
        });
        self.numbered("source", "a list", ("const o=[", "];o[1]"), |at| format!("{at},"));
        self.numbered("source", "cases", ("switch(a){", "}"), |at| format!("case {at}:b={at};"));
        self.numbered("source", "members of a class", ("class A{", "}new A()"), |at| {
            format!("a{at}(){{return this.a{}()}}", at + 1)
        });
        self.numbered("source", "changes of one object", ("const o={};", ""), |at| {
            format!("o.a{at}=args;")
        });
    }

    /// Tokens at which the parser backtracks.
    fn tokens(&mut self, limits: &Limits) {
        self.add("tokens", "a<", format!("a{};", "<b".repeat(499)));
        self.add("tokens", "f<A>(b);", "f<A>(b);".repeat(499));
        self.add("tokens", "<A>", format!("x={}b;", "<A>".repeat(limits.depth as usize)));
        self.add("tokens", "a<b,", format!("x({});", "a<b,".repeat(490)));
        self.add("tokens", "a(b<", format!("x={}0{}", "a(b<".repeat(240), ")".repeat(240)));
        self.add("tokens", "(a<", format!("x={}0{}", "(a<".repeat(240), ")".repeat(240)));
        self.add(
            "tokens",
            "async<",
            format!("x={}0{}", "async<a>(b=".repeat(240), ")=>c".repeat(240)),
        );
        // As much backtracking as the limits allow, around a large expression.
        let core = format!("[{}a]", "a,".repeat(self.bytes / 2 - 200));
        for (head, tail) in [
            ("a?(b):c=>", ""),
            ("(a?(b):c=>", ")"),
            ("a?<T>(b):c=>", ""),
            ("a?await(b):c=>", ""),
            ("[<T>", "]"),
            ("(a)=>{[a<", "]}"),
            ("a<[", "]"),
        ] {
            for count in [3, 4, 5, 6] {
                let source = format!("x={}{core}{}", head.repeat(count), tail.repeat(count));
                self.add("tokens", format!("{head} × {count}"), source);
            }
        }
        // Kinds of backtracking in each other: they multiply.
        for (head, tail) in [
            ("[<T>(a)=>{[a<", "]}]"),
            ("a<[<T>", "]"),
            ("a?(b):c=>[<T>", "]"),
            ("(a?(b):c=>{[a<", "]})"),
            ("(a?(b):c=>{[a<[<T>", "]]})"),
        ] {
            for count in [1, 2, 3] {
                let (head, tail) = (head.repeat(count), tail.repeat(count));
                for bytes in [self.bytes - 200, self.bytes / 2, self.bytes / 4, self.bytes / 16] {
                    let core = format!("[{}a]", "a,".repeat(bytes / 2));
                    let shape = format!("{head} around {bytes} bytes");
                    self.add("tokens", shape, format!("x={head}{core}{tail}"));
                }
            }
        }
        self.add("tokens", "labels", format!("{};", "a:b:c:d:e:f:g:h:{}\n".repeat(3_000)));
    }

    fn depth(&mut self, limits: &Limits) {
        for (head, core, tail) in [
            ("(", "0", ")"),
            ("[", "0", "]"),
            ("({a:", "0", "})"),
            ("f(", "0", ")"),
            ("{", ";", "}"),
            ("(function(){", ";", "})"),
            ("(()=>{", ";", "})()"),
            ("(async()=>{await ", "0", "})()"),
            ("`${", "0", "}`"),
            ("x=>(", "0", ")"),
            ("!", "0", ""),
            ("x=", "0", ""),
            ("(a=(b,", "0", "))"),
            ("a?0:", "0", ""),
            ("(a?", "0", ":1)"),
            ("(a<b>(", "0", "))"),
            ("(a,b=", "0", ")=>c"),
            ("[a=", "0", "]=d"),
            ("if(1)", ";", ""),
            ("for(const a of b)", ";", ""),
            ("while(a)", ";", ""),
            ("try{", ";", "}catch{}"),
            ("class A extends (", "Object", "){}"),
            ("async (a=", "0", ")=>b"),
            ("(a?(b):c=>", "0", ")"),
            ("a?(b)=>(", "0", "):c"),
            ("a?(b):(", "0", ")"),
        ] {
            // Several depths up to the limit.
            let most = limits.depth as usize;
            for count in [most / 5, most / 4, most / 3, most / 2, most - 2] {
                let source = format!("{}{core}{}", head.repeat(count), tail.repeat(count));
                self.add("depth", format!("{head} × {count}"), source);
            }
        }
        for (head, tail) in
            [("[", "]"), ("A<", ">"), ("(() => ", ")"), ("keyof ", ""), ("{a:", "}")]
        {
            for count in [limits.depth as usize / 3, limits.depth as usize - 4] {
                let source = format!("let x: {}A{};", head.repeat(count), tail.repeat(count));
                self.add("depth", format!("type {head} × {count}"), source);
            }
        }
        let nest = limits.depth as usize - 60;
        let deep =
            format!("{}a.b();{}", "for(const a of b){".repeat(nest / 2), "}".repeat(nest / 2));
        self.add("depth", "loops in loops", deep);
        let most = limits.depth as usize / 4;
        let calls =
            format!("{}mcp.a.b({{x}});{}", "for(const x of y){".repeat(most), "}".repeat(most));
        self.add("depth", "a call in loops in loops", calls.repeat(20));
    }

    fn chain(&mut self, limits: &Limits) {
        let most = limits.chain as usize - 10;
        for link in ["+1", ".a", "()", "[0]", "!", "|1", "&&1", "?.a", "`t`", "??a", "+a", "(a)"] {
            self.add("chain", link, format!("x{}", link.repeat(most)));
        }
        self.add("chain", "+mcp.a.b()", format!("x{}", "+mcp.a.b()".repeat(900)));
        self.add("chain", ".then(a)", format!("x{}", ".then(a)".repeat(most / 2)));
        self.add("chain", ".then(a=>mcp.b.c({a}))", {
            format!("x{}", ".then(a=>mcp.b.c({a}))".repeat(limits.chain as usize / 5))
        });
        let choice = format!("if(1)b;{}", "else if(1)b;".repeat(most));
        self.add("chain", "else if", choice);
        self.add("chain", "else if, with calls", {
            format!("if(a)b;{}", "else if(a)a=mcp.b.c({a});".repeat(990))
        });
    }

    fn tasks(&mut self, limits: &Limits) {
        let most = limits.tasks;
        for line in [
            "mcp.a.b();",
            "await mcp.a.b({x});",
            "if(x){x=await mcp.a.b({x})}\n",
            "for(const y of x)mcp.a.b({y});\n",
            "x=f(()=>mcp.a.b());",
            "try{mcp.a.b()}catch{}\n",
            "x=await mcp.a.b({x:[x]});",
            "{let x=mcp.a.b();mcp.c.d({x})}",
        ] {
            let count = most / line.matches("mcp.").count();
            self.add("tasks", line.trim(), format!("let x;{}", line.repeat(count)));
        }
        let all = format!("await Promise.all([{}]);", "mcp.a.b(),".repeat(most));
        self.add("tasks", "Promise.all", all);
        self.numbered("tasks", "other tools", ("", ""), |at| match at {
            at if at < most => format!("mcp.a{at}.b{at}({{a:{at}}});"),
            _ => ";".into(),
        });
        let text = "x".repeat(30_000);
        let long = format!("const s=\"{text}\";{}", "mcp.a.b({s});".repeat(most));
        self.add("tasks", "one long text in each", long);
        let calls = "mcp.a.b({a:args.a,b:args.b[0],c:`${d}`});".repeat(most);
        self.add("tasks", "with arguments", calls);
    }

    fn edges(&mut self) {
        for (shape, line) in [
            ("a = [a, call(a)]", "a=[a,await mcp.a.b({a})];"),
            ("a = call(a) + a", "a=a+await mcp.a.b({a});"),
            ("a.push(call(a))", "a.push(await mcp.a.b({a}));"),
        ] {
            for count in [150, 195, 198, 900] {
                let source = format!("let a=[];{}", line.repeat(count));
                self.add("edges", format!("{shape} × {count}"), source);
            }
        }
        let mut all = String::new();
        for at in 0..140 {
            all.push_str(&format!("const a{at}=mcp.a.b();"));
        }
        let names: Vec<String> = (0..140).map(|at| format!("a{at}")).collect();
        all.push_str(&format!("await Promise.all([{}]);", names.join(",")));
        for _ in 0..140 {
            all.push_str("mcp.c.d({x:[a0");
            all.push_str("]});");
        }
        let list = names.join(",");
        all.push_str(&format!("const l=[{list}];{}", "mcp.e.f({l});".repeat(140)));
        self.add("edges", "each of 140 into each of 140", all);
    }

    /// Values that take many rounds to reach the fixed point.
    fn rounds(&mut self) {
        let mut backwards = String::from("let v0=mcp.a;\nlet v60=null;\n");
        let mut steps: Vec<String> =
            (0..60).map(|at| format!("()=>{{v{}=v{at};}}", at + 1)).collect();
        steps.reverse();
        for at in 1..60 {
            backwards.push_str(&format!("let v{at}=null;\n"));
        }
        backwards
            .push_str(&format!("for(const step of [{}])step();\nv60.b({{}});", steps.join(",")));
        let room = self.bytes - backwards.len();
        self.add("rounds", "closures that write backwards", backwards.clone());
        self.add("rounds", "the same in a long program", {
            format!("{backwards}\n{}", "x=f(x);".repeat(room / 8))
        });
        self.add("rounds", "the same with objects", {
            format!("{backwards}\n{}", "x={a:x,b:[x]};".repeat(room / 15))
        });
        let mut chain = String::new();
        for at in 0..1_000 {
            chain.push_str(&format!("function f{at}(t){{return f{}(t);}}\n", at + 1));
        }
        chain.push_str("function f1000(t){return t.b({});}\nf0(mcp.a);");
        self.add("rounds", "functions in a row", chain);
        let mut loops = String::new();
        for at in 0..700 {
            loops.push_str(&format!("let a{at}=args;for(const b of c){{a{}=a{at};}}\n", at / 2));
        }
        self.add("rounds", "loops that carry values", loops);
        let mut chain = String::new();
        for at in (0..700).rev() {
            chain.push_str(&format!("function f{at}(t){{g=t;return f{}(t);}}\n", at + 1));
        }
        chain.push_str("let g;function f700(t){return t.b({x:g});}\nf0(mcp.a);f0(mcp.c);");
        self.add("rounds", "functions in a row, backwards", chain);
    }

    fn values(&mut self) {
        let doubled = format!("let a=[1];{}return a;", "a=[a,a,{a}];".repeat(5_000));
        self.add("values", "doubling lists", doubled);
        let text = format!("let s='ab';{}mcp.x[s]();", "s=s+s;".repeat(10_000));
        self.add("values", "doubling texts", text);
        self.fill("values", "o={...o,a:o};");
        self.fill("values", "Object.assign(o,{a:o});");
        self.fill("values", "o.a=o;o=o.a;");
        self.fill("values", "x=a?b:[x];");
        self.fill("values", "[a,b]=[b,a];");
        self.fill("values", "({a,...b}={...b,a});");
        self.numbered("values", "names kept in one object", ("const a=[];", ""), |at| {
            format!("const b{at}=a;a.push(args);\n")
        });
        self.numbered("values", "spread into spread", ("const a0={x:mcp.a.b};", ""), |at| {
            format!("const a{}={{...a{at},y{at}:a{at}}};", at + 1)
        });
        self.numbered("values", "tools in one list", ("const l=[];", "l[x]();"), |at| {
            format!("l.push(mcp.a.b{at});")
        });
        self.numbered("values", "tools in one object", ("const o={};", "o[x]();"), |at| {
            format!("o.a{at}=mcp.a.b{at};")
        });
        self.numbered("values", "choices", ("let t=mcp.a.b;", "t();"), |at| {
            format!("if(x)t=mcp.a.b{at};")
        });
        self.numbered("values", "names of tools", ("for(const n of [", "])mcp.a[n]();"), |at| {
            format!("\"a{at}\",")
        });
    }

    /// Programs with very many errors or warnings.
    fn broken(&mut self) {
        for line in
            ["let a;", "@", ")", "const x;", "a b;", "enum A{}\n", "mcp[a]();", "mcp.a[b]();"]
        {
            self.fill("diagnostics", line);
        }
        self.fill("diagnostics", "import(a);");
        self.fill("diagnostics", "using a=b;");
        self.fill("diagnostics", "f(mcp);");
        self.fill("diagnostics", "eval(a);");
        self.add("diagnostics", "one line", "mcp[a]();é;".repeat(self.bytes / 12));
    }
}
