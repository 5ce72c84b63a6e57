//! `cmd:`: a program of any language that speaks the adapter protocol on its standard streams.

use crate::backend::{Backend, Fault, Identity, Refusal};
use crate::capabilities::Capabilities;
use crate::outputs::{OutputError, Outputs};
use crate::pipe::{Event, Pipe};
use mx_reference::Convention;
use mx_vectors::packs::container;
use mx_vectors::{Call, Tensors};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;
use tempfile::TempDir;

/// The protocol's version.
const PROTOCOL: u64 = 1;
/// The longest name or reason that is kept, in characters.
const LONGEST_WORDS: usize = 400;
/// The largest `multiple` that block cases are tiled up to.
const LARGEST_MULTIPLE: usize = 4096;

/// A backend behind the adapter protocol.
#[derive(Debug)]
pub struct Process {
    argv: Vec<String>,
    deadline: Duration,
    folder: TempDir,
    pipe: Option<Pipe>,
    next_id: u64,
    identity: Identity,
    capabilities: Capabilities,
}

#[derive(Deserialize)]
struct Hello {
    name: String,
    #[serde(default)]
    version: String,
    artifact: Option<String>,
    device: Option<String>,
    #[serde(flatten)]
    capabilities: Capabilities,
}

#[derive(Deserialize)]
struct Answer {
    id: u64,
    status: Status,
    #[serde(default)]
    reason: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Status {
    Ok,
    Unsupported,
    Error,
}

impl Process {
    /// Starts a command, split like a shell would and run without one, and says hello.
    ///
    /// # Errors
    /// [`Fault`] if it cannot be started or does not answer properly.
    pub fn start(command: &str, deadline: Duration) -> Result<Self, Fault> {
        let unstartable = |reason: String| Fault::Start { command: command.to_owned(), reason };
        let argv = shell_words::split(command).map_err(|e| unstartable(e.to_string()))?;
        if argv.is_empty() {
            return Err(unstartable("the command is empty".to_owned()));
        }
        let folder = TempDir::with_prefix("mxcert-").map_err(|e| unstartable(e.to_string()))?;
        let mut process = Self {
            argv,
            deadline,
            folder,
            pipe: None,
            next_id: 0,
            identity: Identity {
                name: command.to_owned(),
                version: String::new(),
                artifact: None,
                device: None,
            },
            capabilities: Capabilities::default(),
        };
        let hello = process.hello()?;
        process.identity = Identity {
            name: clean(&hello.name),
            version: clean(&hello.version),
            artifact: hello.artifact.as_deref().map(clean),
            device: hello.device.as_deref().map(clean),
        };
        process.capabilities = hello.capabilities;
        Ok(process)
    }

    fn hello(&mut self) -> Result<Hello, Fault> {
        let pipe = Pipe::spawn(&self.argv)?;
        self.pipe = Some(pipe);
        let line = self.exchange(&json!({ "mxcert": PROTOCOL, "op": "hello" }))?;
        let keys: Map<String, Value> =
            self.parse(&line, "an answer to hello with at least `name`")?;
        let hello: Hello = match serde_json::from_str(&line) {
            Ok(hello) => hello,
            // It is JSON, so where it stands in the line tells nothing.
            Err(error) => {
                let error = error.to_string();
                let what = error.rsplit_once(" at line ").map_or(&*error, |(what, _)| what);
                return Err(self.protocol(format!("{} in the answer to hello", clean(what))));
            }
        };
        let keys: Vec<&str> = keys.keys().map(String::as_str).collect();
        if let Some(typo) = hello.capabilities.misspelt(&keys) {
            return Err(self.protocol(format!("{typo} in the answer to hello")));
        }
        let (rows, cols) = hello.capabilities.multiple.unwrap_or((1, 1));
        if rows == 0 || cols == 0 || rows.max(cols) > LARGEST_MULTIPLE {
            let what = format!(
                "`multiple` must lie between 1 and {LARGEST_MULTIPLE}, got [{rows}, {cols}]"
            );
            return Err(self.protocol(what));
        }
        Ok(hello)
    }

    /// Sends a request and waits for one line.
    fn exchange(&mut self, request: &Value) -> Result<String, Fault> {
        let deadline = self.deadline;
        let Some(pipe) = &mut self.pipe else {
            return Err(Fault::Protocol { what: "not running".to_owned(), stderr: String::new() });
        };
        if pipe.has_spoken() {
            return Err(self.protocol("an answer before the request".to_owned()));
        }
        pipe.send(request.to_string());
        match pipe.receive(deadline) {
            Event::Line(line) => Ok(line),
            Event::Ended => {
                let (status, stderr) = pipe.wait();
                self.pipe = None;
                Err(Fault::Crashed { status, stderr })
            }
            Event::TooLong(limit) => {
                Err(self.protocol(format!("a line longer than {limit} bytes on standard output")))
            }
            Event::Silence => {
                self.pipe = None;
                Err(Fault::timed_out(deadline))
            }
        }
    }

    /// The fault of a broken protocol; the process is ended, since nothing more can be read from it in step.
    fn protocol(&mut self, what: String) -> Fault {
        let stderr = self.pipe.take().map(|mut pipe| pipe.stderr()).unwrap_or_default();
        Fault::Protocol { what, stderr }
    }

    fn parse<T: for<'de> Deserialize<'de>>(
        &mut self,
        line: &str,
        expected: &str,
    ) -> Result<T, Fault> {
        serde_json::from_str(line).map_err(|error| {
            let shown: String = line.chars().take(120).collect();
            self.protocol(format!("expected {expected} as one line of JSON, got `{shown}` ({error}); print everything else to standard error"))
        })
    }

    fn request(&self, call: &Call, convention: &Convention, input: &Path, output: &Path) -> Value {
        let mut profile: Map<String, Value> = call
            .op
            .fields()
            .into_iter()
            .map(|(key, value)| (key.to_owned(), value.into()))
            .collect();
        profile.insert("convention".to_owned(), convention.name.into());
        if let ("swizzle", Some(scales)) = (call.op.name(), call.inputs.get("scales")) {
            for (key, &length) in ["rows", "cols"].into_iter().zip(&scales.shape) {
                profile.insert(key.to_owned(), length.into());
            }
        }
        json!({
            "op": call.op.name(),
            "id": self.next_id,
            "profile": profile,
            "in": input,
            "out": output,
        })
    }

    /// Reads what the adapter wrote: exactly the outputs asked for are loaded, and only if shape and type are right.
    fn read(&mut self, path: &Path, outputs: &mut Outputs) -> Result<(), Fault> {
        let wrong = |what: String| format!("answered ok, but {what}");
        if !path.exists() {
            return Err(self.protocol(wrong("wrote no output file".to_owned())));
        }
        let mut file = match container::open(path) {
            Ok(file) => file,
            Err(error) => return Err(self.protocol(wrong(error.to_string()))),
        };
        let mut tensors = Tensors::new();
        for (name, expected) in outputs.described() {
            let (Some(dtype), Some(shape)) = (file.dtype(&name), file.shape(&name)) else {
                let names: Vec<_> = file.names().map(str::to_owned).collect();
                let error = OutputError::Names { expected: outputs.names(), got: names };
                return Err(self.protocol(wrong(error.to_string())));
            };
            let got = format!("{dtype:?} {shape:?}");
            if got != expected {
                let error = OutputError::Shape { name, expected, got };
                return Err(self.protocol(wrong(error.to_string())));
            }
            match file.load(&name) {
                Ok(tensor) => tensors.insert(name, tensor),
                Err(error) => return Err(self.protocol(wrong(error.to_string()))),
            };
        }
        outputs.fill(&tensors).map_err(|error| self.protocol(wrong(error.to_string())))
    }

    fn path(&self, side: &str) -> PathBuf {
        self.folder.path().join(format!("{}-{side}.safetensors", self.next_id))
    }

    fn converse(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        [input, output]: [&Path; 2],
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        if self.pipe.is_none() {
            self.hello()?;
        }
        container::write(input, &call.inputs, None).map_err(|error| Fault::Start {
            command: self.argv.join(" "),
            reason: format!("its input could not be written: {error}"),
        })?;
        let length = file_length(input);
        let request = self.request(call, convention, input, output);
        let line = self.exchange(&request)?;
        let answer: Answer = self.parse(&line, "an answer with `id` and `status`")?;
        if answer.id != self.next_id {
            let what =
                format!("expected the answer to request {}, got {}", self.next_id, answer.id);
            return Err(self.protocol(what).into());
        }
        match answer.status {
            Status::Unsupported => return Err(Refusal::Unsupported(clean(&answer.reason))),
            Status::Error => return Err(Fault::Raised { reason: clean(&answer.reason) }.into()),
            Status::Ok => {}
        }
        let unchanged = length.is_some()
            && file_length(input) == length
            && container::read(input).is_ok_and(|loaded| loaded.tensors == call.inputs);
        if !unchanged {
            return Err(Refusal::InputsChanged("in".to_owned()));
        }
        self.read(output, outputs)?;
        Ok(())
    }
}

/// The length of a regular file.
fn file_length(path: &Path) -> Option<u64> {
    path.symlink_metadata().ok().filter(std::fs::Metadata::is_file).map(|there| there.len())
}

/// A program's words fit for a report: one line, no control characters, not endless.
fn clean(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.chars().take(LONGEST_WORDS).map(plain).collect()
}

impl Backend for Process {
    fn identity(&self) -> &Identity {
        &self.identity
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn execute(
        &mut self,
        call: &Call,
        convention: &'static Convention,
        outputs: &mut Outputs,
    ) -> Result<(), Refusal> {
        self.next_id += 1;
        let (input, output) = (self.path("in"), self.path("out"));
        let result = self.converse(call, convention, [&input, &output], outputs);
        for path in [input, output] {
            // What the adapter has not written cannot be removed; the folder goes with the run.
            let _ = std::fs::remove_file(path);
        }
        result
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(pipe) = &mut self.pipe {
            pipe.goodbye(json!({ "op": "bye" }).to_string());
        }
    }
}
