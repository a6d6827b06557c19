//! Pictures and files that programs show: captured without a change in the program, and judged on the host.

use agent::event::{Content, Event, Events};
use agent::log::{ArtifactLimits, Artifacts};
use agent::picture::Header;
use agent::sandbox::{Command, Outcome};
use agent::tools::code::display::{Run, ShownOutput, collect};
use agent::tools::{Bounds, Context};
use agent_testbed::backends::{TestSandbox, on_every_backend, shell};
use agent_testing::skip::debian_python_has;
use std::sync::{Arc, Mutex};

/// The files that a run of `text` showed, with the names and media types that its events gave.
struct Shown {
    collected: ShownOutput,
    events: Vec<(String, String)>,
    store: tempfile::TempDir,
    output: String,
    run: Run,
}

impl Shown {
    fn images(&self) -> Vec<Header> {
        let artifacts = Artifacts::of_session(self.store.path(), ArtifactLimits::default());
        let image = |part: &Content| match part {
            Content::Image { artifact } => Some(Header::of(&artifacts.read(artifact).unwrap()).unwrap()),
            _ => None,
        };
        self.collected.content.iter().filter_map(image).collect()
    }

    fn names(&self) -> Vec<(&str, &str)> {
        self.events.iter().map(|(name, kind)| (name.as_str(), kind.as_str())).collect()
    }
}

async fn show(inside: &TestSandbox, text: &str) -> Shown {
    let run = Run::begin(&inside.sandbox).await.unwrap();
    let env = run.environment().into_iter().map(|(name, value)| (name.into(), value.into())).collect();
    let ran = inside.run(Command { env, ..shell(text) }).await;
    assert_eq!(ran.outcome(), Outcome::Exited(0), "on {}: {}", inside.backend, ran.text());
    let (events, store) = (Events::new(1), tempfile::tempdir().unwrap());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let listener = Arc::clone(&seen);
    let subscription = events.listen(Box::new(move |record: &agent::event::Record, _: &[u8]| {
        if let Event::Artifact { artifact, tool_call } = &record.event {
            assert_eq!(tool_call, "call_1");
            listener.lock().unwrap().push((artifact.name.clone(), artifact.media_type.clone()));
        }
        Ok(())
    }));
    let artifacts = Artifacts::of_session(store.path(), ArtifactLimits::default());
    let context = Context {
        sandbox: &inside.sandbox,
        events: &events,
        artifacts: &artifacts,
        call: "call_1",
        reach: &(),
        bounds: Bounds::default(),
    };
    let collected = collect(context, &run).await.unwrap();
    subscription.flush_blocking().unwrap();
    let events = std::mem::take(&mut *seen.lock().unwrap());
    Shown { collected, events, store, output: ran.text(), run }
}

fn python(code: &str) -> String {
    format!("/usr/bin/python3 - <<'PYTHON'\n{code}\nPYTHON")
}

#[tokio::test]
async fn matplotlib_figures_become_images_whether_they_are_shown_or_not() {
    if !debian_python_has("matplotlib", "python3-matplotlib") {
        return;
    }
    on_every_backend(async |inside| {
        let code = "
import matplotlib.pyplot as plt
plt.plot([1, 2, 3])
plt.show()
figure, axes = plt.subplots(figsize=(4, 3))
axes.bar(['a', 'b'], [3, 4])
figure.savefig('own.png')
print('drawn')";
        let shown = show(inside, &python(code)).await;
        assert!(shown.output.ends_with("drawn"), "{}", shown.output);
        assert_eq!(shown.names(), [("figure-1.png", "image/png"), ("figure-2.png", "image/png")]);
        let sizes: Vec<(u32, u32)> = shown.images().iter().map(|image| (image.width, image.height)).collect();
        assert_eq!(sizes, [(640, 480), (400, 300)]);
        let lines = &shown.collected.lines;
        assert!(lines.starts_with("[image figure-1.png: image/png, 640×480 pixels, "), "{lines}");
        assert!(lines.ends_with("[files written: own.png]\n"), "{lines}");
    })
    .await;
}

#[tokio::test]
async fn a_figure_may_show_itself_and_a_program_may_choose_its_own_backend() {
    if !debian_python_has("matplotlib", "python3-matplotlib") {
        return;
    }
    on_every_backend(async |inside| {
        let code = "
from matplotlib.figure import Figure
import matplotlib, matplotlib.pyplot as plt
plt.figure().show()
matplotlib.use('Agg')
plt.plot([1, 2])
plt.show()
try:
    matplotlib.use('TkAgg')
    plt.figure()
except ImportError as error:
    print('refused', error)";
        let shown = show(inside, &python(code)).await;
        assert_eq!(shown.names(), [("figure-1.png", "image/png")], "{}", shown.output);
    })
    .await;
}

#[tokio::test]
async fn pillow_shows_images_and_a_sitecustomize_of_the_user_still_runs() {
    if !debian_python_has("PIL", "python3-pil") {
        return;
    }
    on_every_backend(async |inside| {
        let code = "
import PIL.Image
PIL.Image.new('CMYK', (30, 20)).show()
PIL.Image.new('RGBA', (5, 7)).show()";
        let own = "mkdir -p own && echo 'print(\"own\")' > own/sitecustomize.py && export PYTHONPATH=$PYTHONPATH:own\n";
        let shown = show(inside, &(own.to_owned() + &python(code))).await;
        assert_eq!(shown.output, "own");
        let sizes: Vec<(u32, u32)> = shown.images().iter().map(|image| (image.width, image.height)).collect();
        assert_eq!(sizes, [(30, 20), (5, 7)]);
    })
    .await;
}

/// plotly itself is not needed: what is hooked is.
#[tokio::test]
async fn plotly_figures_become_json_and_html() {
    on_every_backend(async |inside| {
        let stand_in = r#"
mkdir -p plotly/io
echo > plotly/__init__.py
cat > plotly/io/__init__.py <<'P'
from plotly.io._renderers import renderers
def to_json(figure, validate): return '{"data": []}'
def to_html(figure, include_plotlyjs, validate): return '<html></html>'
P
cat > plotly/io/_base_renderers.py <<'P'
class ExternalRenderer: pass
P
cat > plotly/io/_renderers.py <<'P'
class Renderers(dict): default = 'browser'
renderers = Renderers()
P
"#;
        let code = "
import plotly.io
assert plotly.io.renderers.default == 'agent'
plotly.io.renderers['agent'].render({})";
        let shown = show(inside, &(stand_in.to_owned() + &python(code))).await;
        assert_eq!(
            shown.names(),
            [("output-1.plotly.json", "application/vnd.plotly.v1+json"), ("output-2.html", "text/html")]
        );
        assert!(matches!(shown.collected.content[0], Content::Artifact { .. }));
    })
    .await;
}

#[tokio::test]
async fn a_kept_interpreter_saves_tables_and_figures_at_the_end_of_a_cell() {
    if !debian_python_has("matplotlib", "python3-matplotlib") {
        return;
    }
    on_every_backend(async |inside| {
        let code = "
import agent_display
class Table:
    def _repr_html_(self): return '<table></table>'
class Broken:
    def _repr_png_(self): raise ValueError
    def _repr_svg_(self): return '<svg/>'
assert agent_display.display(Table()) and agent_display.display(Broken())
assert not agent_display.display(7) and not agent_display.display(Table)
import matplotlib.pyplot as plt
plt.plot([1])
agent_display.flush()
agent_display.flush()";
        let shown = show(inside, &python(code)).await;
        let names = shown.names();
        assert_eq!(
            names,
            [
                ("output-1.html", "text/html"),
                ("figure-2.svg", "image/svg+xml"),
                ("figure-3.png", "image/png")
            ]
        );
    })
    .await;
}

#[tokio::test]
async fn gnuplot_and_r_draw_to_images() {
    on_every_backend(async |inside| {
        if inside.sh("command -v gnuplot").await.outcome() == Outcome::Exited(0) {
            let shown = show(inside, "gnuplot -e 'plot sin(x)'").await;
            assert_eq!(shown.images().len(), 1, "{}", shown.output);
        }
        if inside.sh("command -v Rscript").await.outcome() == Outcome::Exited(0) {
            let shown = show(inside, "Rscript -e 'plot(1:3); hist(c(1, 2, 2))'").await;
            assert_eq!(shown.images().len(), 2, "{}", shown.output);
        }
    })
    .await;
}

/// Nothing in the run's directory is believed.
#[tokio::test]
async fn a_hostile_directory_costs_the_pictures_and_nothing_else() {
    on_every_backend(async |inside| {
        let code = r#"
import os, struct, zlib
os.chdir(os.environ['AGENT_DISPLAY_DIR'])
def chunk(name, data): return struct.pack('>I', len(data)) + name + data + struct.pack('>I', zlib.crc32(name + data))
def png(width, height, data): return b'\x89PNG\r\n\x1a\n' + chunk(b'IHDR', struct.pack('>IIBBBBB', width, height, 8, 2, 0, 0, 0)) + chunk(b'IDAT', data) + chunk(b'IEND', b'')
good = png(1, 1, zlib.compress(b'\0\1\2\3'))
def write(name, data): open(name, 'wb').write(data)
write('a-huge.png', png(60000, 60000, zlib.compress(b'\0')))
write('b-cut.png', good[:-5])
write('c-page.png', b'<script>alert(1)</script>')
write('d-trailer.png', good + b'<script>')
os.symlink('/etc/passwd', 'e-link.png')
os.mkfifo('f-pipe.png')
os.mkdir('g-directory.png')
open('h-sparse.png', 'wb').truncate(1 << 30)
write('i-\x1b]0;title\x07\u202e.png', good)
os.symlink('.', 'loop')
for n, name in enumerate(sorted(os.listdir('.'))):
    if os.path.isfile(name) and not os.path.islink(name): os.utime(name, (n, n))"#;
        let shown = show(inside, &python(code)).await;
        assert_eq!(shown.images().len(), 1);
        let files: Vec<&str> = shown.events.iter().map(|(_, media_type)| media_type.as_str()).collect();
        let unknown = "application/octet-stream";
        assert_eq!(files, [unknown, unknown, unknown, unknown, "image/png"]);
        let lines = &shown.collected.lines;
        assert!(lines.contains("60000×60000 pixels are too many"), "{lines}");
        assert!(lines.contains("h-sparse.png was not taken: 1073741824 bytes are more than the limit"), "{lines}");
        assert!(!lines.contains('\u{1b}') && !lines.contains('\u{202e}'), "{lines:?}");
        assert!(shown.events.iter().all(|(name, _)| !name.contains(char::is_control)));
    })
    .await;
}

#[tokio::test]
async fn too_many_files_are_counted_and_far_too_many_cost_one_line() {
    on_every_backend(async |inside| {
        let many = |count: u32| {
            format!("cd $AGENT_DISPLAY_DIR && for n in $(seq {count}); do echo 1 > $n.csv; done")
        };
        let shown = show(inside, &many(25)).await;
        assert_eq!(shown.collected.content.len(), 20);
        let rest = format!("[5 more files in {} were not taken]\n", shown.run.directory().display());
        assert!(shown.collected.lines.ends_with(&rest), "{}", shown.collected.lines);
        let shown = show(inside, &many(1_100)).await;
        assert!(shown.collected.content.is_empty());
        assert!(
            shown.collected.lines.starts_with("[nothing of /tmp/agent/display/"),
            "{}",
            shown.collected.lines
        );
    })
    .await;
}

#[tokio::test]
async fn a_program_that_shows_nothing_and_removes_everything_leaves_no_line() {
    on_every_backend(async |inside| {
        let shown = show(inside, "echo text; rm -rf /tmp/agent").await;
        assert_eq!(shown.collected, ShownOutput::default());
        // What was removed is put back for the next run.
        let shown = show(inside, &python("import agent_display")).await;
        assert_eq!(shown.collected, ShownOutput::default());
        // A name that is in the way costs the pictures.
        let shown = show(inside, "rm -rf /tmp/agent && echo > /tmp/agent").await;
        assert_eq!(shown.collected, ShownOutput::default());
        assert_eq!(show(inside, "true").await.collected, ShownOutput::default());
    })
    .await;
}
