//! Calls in loops and calls with computed arguments: they are known from a rehearsal, in which no call is made.

use serde_json::Value;

use crate::support::cli::Project;
use crate::support::expect::{calls, question, success};

fn description(asked: &Value) -> &str {
    question(asked)["description"].as_str().unwrap()
}

#[test]
fn a_loop_of_twenty_calls_is_one_question() {
    let project = Project::offline();
    let mut pml = project.stdio();
    for code in [
        "for (let i = 0; i < 20; i++) await mcp.filesystem.write_file({ path: `f${i}.txt`, content: `${i}` });
         return 'written';",
        "const pages = Array.from({ length: 20 }, (_, i) => ({ path: 'f' + i + '.txt', content: String(i) }));
         await Promise.all(pages.map((page) => mcp.filesystem.write_file(page)));
         return 'written';",
        "async function main() {
           let i = 0;
           while (i < 20) {
             await mcp.filesystem.write_file({ path: ['f', i, '.txt'].join(''), content: JSON.stringify(i) });
             await new Promise((go) => setTimeout(go, 20));
             i += 1;
           }
           return 'written';
         }
         return await main();",
    ] {
        let asked = pml.execute(code);
        assert_eq!(asked["approval_type"], "plan", "{asked:#}");
        let lines: Vec<&str> = description(&asked).lines().collect();
        assert_eq!(lines.len(), 21, "{lines:#?}");
        for (place, line) in lines[..20].iter().enumerate() {
            let arguments = format!("{{\"path\":\"f{place}.txt\",\"content\":\"{place}\"}}");
            assert_eq!(
                *line,
                format!("{}. Run `filesystem:write_file` with {arguments}", place + 1)
            );
        }
        assert!(!project.path("f0.txt").exists());
        let done = pml.resume(&asked, true, false);
        assert_eq!(success(&done), "written");
        assert_eq!(calls(&done).len(), 20);
        assert_eq!(project.read("f19.txt"), "19");
        (0..20).for_each(|place| std::fs::remove_file(project.path(&format!("f{place}.txt"))).unwrap());
    }
}

/// The same with one argument that depends on data: a second question about this call only.
#[test]
fn a_call_that_depends_on_a_result_is_asked_about_again() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("name.txt", "b");
    let mut pml = project.stdio();
    let asked = pml.execute(
        "for (const name of ['a', 'b', 'c']) await mcp.filesystem.write_file({ path: `site/${name}`, content: '1' });
         const text = await mcp.filesystem.read_text_file({ path: 'name.txt' });
         await mcp.filesystem.write_file({ path: `copy/${text}`, content: '2' });
         for (const _ of text) await mcp.filesystem.create_directory({ path: 'd' });
         return 'written';",
    );
    assert_eq!(
        description(&asked),
        "1. Run `filesystem:write_file` with {\"path\":\"site/a\",\"content\":\"1\"}\n\
         2. Run `filesystem:write_file` with {\"path\":\"site/b\",\"content\":\"1\"}\n\
         3. Run `filesystem:write_file` with {\"path\":\"site/c\",\"content\":\"1\"}\n\
         Not covered, and asked about when the program reaches it:\n\
         - `filesystem:write_file`, line 3: the program computes its arguments\n\
         - `filesystem:create_directory`, line 4: it may be called any number of times\n\
         Allowing it covers these 3 calls, with exactly these arguments."
    );
    for (place, line) in [(0, 1), (1, 1), (2, 1)] {
        assert_eq!(question(&asked)["context"]["calls"][place]["line"], line);
    }
    std::fs::create_dir_all(project.path("site")).unwrap();
    std::fs::create_dir_all(project.path("copy")).unwrap();
    let second = pml.resume(&asked, true, false);
    assert_eq!(
        description(&second),
        "Run `filesystem:write_file` with {\"path\":\"copy/b\",\"content\":\"2\"}"
    );
    let third = pml.resume(&second, true, false);
    assert_eq!(description(&third), "Run `filesystem:create_directory` with {\"path\":\"d\"}");
    assert_eq!(success(&pml.resume(&third, true, false)), "written");
}

/// Times and random numbers are others when the program runs, so calls that have them are not listed.
#[test]
fn times_and_random_numbers_are_not_known() {
    let project = Project::offline();
    let mut pml = project.stdio();
    let asked = pml.execute(
        "for (const name of ['a', 'b']) await mcp.filesystem.write_file({ path: `${name}.txt`, content: '1' });
         await mcp.filesystem.write_file({ path: 'now', content: `${Date.now()}` });
         await mcp.filesystem.write_file({ path: 'day', content: new Date().toISOString().slice(0, 10) });
         await mcp.filesystem.write_file({ path: 'random', content: `${Math.random()}` });
         await mcp.filesystem.write_file({ path: 'id', content: crypto.randomUUID() });
         return 'written';",
    );
    let text = description(&asked);
    assert_eq!(text.matches("Run `filesystem:write_file`").count(), 2, "{text}");
    assert!(text.contains("`filesystem:write_file`, lines 2, 3, 4, 5: "), "{text}");
}

/// P5: a program can tell a rehearsal by its results. What it calls otherwise is asked about.
#[test]
fn a_program_that_behaves_differently_is_asked_about() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("a.txt", "real");
    project.write("keep.txt", "kept");
    let mut pml = project.stdio();
    let asked = pml.execute(
        "const seen = [];
         await mcp.filesystem.read_text_file({ path: 'a.txt' }).then((text) => seen.push(text));
         for (const path of ['b.txt', 'c.txt']) {
           const target = seen[0] === 'real' ? 'keep.txt' : path;
           await mcp.filesystem.write_file({ path: target, content: 'x' });
         }
         return 'written';",
    );
    // Whatever is listed, the file is not changed without a question about it.
    let mut asked = asked;
    while !description(&asked).contains("keep.txt") {
        assert_eq!(project.read("keep.txt"), "kept");
        asked = pml.resume(&asked, true, false);
    }
    assert_eq!(project.read("keep.txt"), "kept");
}

/// A rehearsal that does not end is no reason to wait.
#[test]
fn a_rehearsal_ends_in_any_case() {
    let project = Project::offline();
    let mut pml = project.stdio();
    for (tail, is_listed) in [
        ("while (true) {}", false),
        ("throw new Error('x');", true),
        ("await new Promise(() => {});", true),
        ("const big = []; while (true) big.push('x'.repeat(1e6));", false),
        ("(function again() { again(); })();", true),
        (
            "for (;;) await mcp.filesystem.write_file({ path: 'c', content: 'x'.repeat(100_000) });",
            false,
        ),
        (
            "for (let i = 0; i < 900; i++) mcp.filesystem.create_directory({ path: `d${i % 7}` });",
            false,
        ),
    ] {
        let code = format!(
            "for (const name of ['a', 'b']) await mcp.filesystem.write_file({{ path: name, content: '1' }});\n{tail}"
        );
        let asked = pml.execute(&code);
        let text = description(&asked);
        assert_eq!(text.contains("2. Run `filesystem:write_file`"), is_listed, "{tail}: {text}");
        // It may make further calls: that is not known.
        let others = text.contains("line 1: the program computes its arguments");
        assert_eq!(others, is_listed, "{tail}: {text}");
        pml.resume(&asked, false, false);
    }
}

/// Only the first change of a file is shown as lines: what the file is before the second one is not known.
#[test]
fn only_the_first_change_of_a_file_is_shown() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("log.txt", "old\n");
    let mut pml = project.stdio();
    let code = "
        const note = (text) => mcp.filesystem.write_file({ path: 'log.txt', content: text });
        for (const text of ['one\\n', 'two\\n']) await note(text);
        await mcp.filesystem.write_file({ path: 'log.txt', content: 'three' });
        return 'written';";
    let asked = pml.execute(code);
    let text = description(&asked);
    assert_eq!(text.matches("-old").count(), 1, "{text}");
    let first = text.split("\n2. ").next().unwrap();
    assert!(first.contains("-old\n") && first.contains("+one\n"), "{text}");
    assert_eq!(success(&pml.resume(&asked, true, false)), "written");
    assert_eq!(project.read("log.txt"), "three");
}

/// A call that fails, or needs no approval, is not in the list of a loop either.
#[test]
fn only_calls_that_need_approval_are_listed() {
    let project = Project::offline().allow(&["filesystem:read_text_file"]);
    project.write("a.txt", "A");
    let mut pml = project.stdio();
    let asked = pml.execute(
        "for (const path of ['a.txt', '../outside', 'b.txt']) {
           try { await mcp.filesystem.write_file({ path, content: '1' }) } catch {}
           await mcp.filesystem.read_text_file({ path: 'a.txt' });
         }
         return 'written';",
    );
    let text = description(&asked);
    assert_eq!(text.matches("Run `filesystem:write_file`").count(), 2, "{text}");
    assert!(!text.contains("outside\""), "{text}");
}
