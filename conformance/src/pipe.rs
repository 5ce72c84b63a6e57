//! A child process with line-wise standard streams, deadlines, and an end that is certain.

use crate::backend::Fault;
use rustix::process::{Pid, Signal, kill_process_group};
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel, sync_channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The longest line that is read.
const LONGEST_LINE: u64 = 1 << 20;
/// How much of standard error is kept.
const STDERR_TAIL: usize = 2048;
/// How long a process may take to end by itself after `bye`.
const GRACE: Duration = Duration::from_secs(2);

/// What came from the child.
#[derive(Debug)]
pub enum Event {
    /// A line.
    Line(String),
    /// More bytes without a line end than a line may have.
    TooLong(u64),
    /// The end of its standard output.
    Ended,
    /// Nothing within the deadline.
    Silence,
}

/// A running child; dropping it ends it and everything in its process group.
#[derive(Debug)]
pub struct Pipe {
    child: Child,
    requests: Option<Sender<String>>,
    lines: Receiver<Event>,
    early: Option<Event>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
}

impl Pipe {
    /// Starts a program in a process group of its own.
    ///
    /// # Errors
    /// [`Fault::Start`].
    pub fn spawn(argv: &[String]) -> Result<Self, Fault> {
        let fault = |reason: String| Fault::Start { command: argv.join(" "), reason };
        let (program, arguments) =
            argv.split_first().ok_or_else(|| fault("the command is empty".to_owned()))?;
        let mut child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
            .map_err(|error| fault(error.to_string()))?;
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(fault("its standard streams could not be opened".to_owned()));
        };
        // A child that does not read fills its pipe; only this thread waits for it.
        let (requests, queue) = channel::<String>();
        let stdin = child.stdin.take();
        std::thread::spawn(move || write_lines(stdin, &queue));
        // A bound keeps a program that prints without end from filling memory.
        let (sender, lines) = sync_channel(16);
        std::thread::spawn(move || {
            let mut reader = BufReader::new(stdout);
            loop {
                let event = read_line(&mut reader);
                let last = !matches!(event, Event::Line(_));
                if sender.send(event).is_err() || last {
                    return;
                }
            }
        });
        let tail = Arc::new(Mutex::new(VecDeque::new()));
        let kept = Arc::clone(&tail);
        std::thread::spawn(move || keep_tail(stderr, &kept));
        Ok(Self { child, requests: Some(requests), lines, early: None, stderr: tail })
    }

    /// Sends a line, without waiting for the child to read it.
    pub fn send(&mut self, line: String) {
        if let Some(requests) = &self.requests {
            // A child that has ended is noticed where its answer is waited for.
            let _ = requests.send(line);
        }
    }

    /// Whether a line has come that nobody asked for.
    pub fn has_spoken(&mut self) -> bool {
        if self.early.is_none() {
            self.early = self.lines.try_recv().ok();
        }
        matches!(self.early, Some(Event::Line(_) | Event::TooLong(_)))
    }

    /// Waits for a line.
    pub fn receive(&mut self, deadline: Duration) -> Event {
        if let Some(event) = self.early.take() {
            return event;
        }
        match self.lines.recv_timeout(deadline) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout) => Event::Silence,
            Err(RecvTimeoutError::Disconnected) => Event::Ended,
        }
    }

    /// The status of a child whose output has ended, and the end of its standard error.
    pub fn wait(&mut self) -> (String, String) {
        let status = self.wait_for(GRACE);
        let words = match status {
            Some(status) => match status.signal() {
                Some(signal) => format!("killed by signal {signal}"),
                None => format!("exit code {}", status.code().unwrap_or(-1)),
            },
            None => "closed its standard output but went on running".to_owned(),
        };
        (words, self.stderr())
    }

    /// The end of its standard error so far.
    pub fn stderr(&mut self) -> String {
        // A moment for what is on its way.
        std::thread::sleep(Duration::from_millis(20));
        match self.stderr.lock() {
            Ok(tail) => {
                let bytes: Vec<u8> = tail.iter().copied().collect();
                String::from_utf8_lossy(&bytes).trim().to_owned()
            }
            Err(_) => String::new(),
        }
    }

    /// Says goodbye and gives the child a moment to end.
    pub fn goodbye(&mut self, line: String) {
        self.send(line);
        self.requests = None;
        self.wait_for(GRACE);
    }

    fn wait_for(&mut self, limit: Duration) -> Option<ExitStatus> {
        let started = Instant::now();
        loop {
            match self.child.try_wait() {
                Ok(Some(status)) => return Some(status),
                Ok(None) if started.elapsed() < limit => {
                    std::thread::sleep(Duration::from_millis(2));
                }
                _ => return None,
            }
        }
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // The group holds whatever the child started; a group that is already gone is what is wanted.
        let _ = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn read_line(reader: &mut impl BufRead) -> Event {
    let mut line = Vec::new();
    match reader.take(LONGEST_LINE).read_until(b'\n', &mut line) {
        Ok(0) | Err(_) => Event::Ended,
        Ok(_) if line.last() == Some(&b'\n') => {
            Event::Line(String::from_utf8_lossy(&line).trim_end().to_owned())
        }
        Ok(n) if n as u64 == LONGEST_LINE => Event::TooLong(LONGEST_LINE),
        // A last line without an end, cut off when the child died.
        Ok(_) => Event::Ended,
    }
}

/// Writes lines until there are no more, or nobody reads them; then the child sees the end of its input.
fn write_lines(stdin: Option<ChildStdin>, queue: &Receiver<String>) {
    let Some(mut stdin) = stdin else { return };
    for mut line in queue {
        line.push('\n');
        if stdin.write_all(line.as_bytes()).and_then(|()| stdin.flush()).is_err() {
            return;
        }
    }
}

fn keep_tail(mut stream: impl Read, tail: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = stream.read(&mut buffer) {
        let Ok(mut tail) = tail.lock() else { return };
        tail.extend(&buffer[..n]);
        let excess = tail.len().saturating_sub(STDERR_TAIL);
        tail.drain(..excess);
    }
}
