//! Which messages the guest may send on a stream, and when.

use agent_wire::{self as wire, Message};

/// The subject of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Expect {
    Command,
    JobStarted,
    JobOutput,
    Stated,
    /// `FileIs` first, then the bytes.
    File {
        begun: bool,
    },
    /// `Block`s, then `Done`.
    Files,
    Done,
    Updated,
    Missing,
    Attributes,
    Entries,
    Facts,
    /// Nothing but `Opened` or `Failed` first, then bytes.
    Tunnel {
        open: bool,
        guest_ended: bool,
        host_ended: bool,
    },
}

impl Expect {
    /// Returns whether the message is the guest's last one on the stream; `None` where it is out of place.
    pub fn admit(&mut self, message: &Message) -> Option<bool> {
        match (self, message) {
            (Self::Tunnel { open: true, .. }, Message::Failed { .. }) => None,
            (_, Message::Failed { .. }) => Some(true),
            (Self::Command | Self::JobOutput, Message::Output { .. } | Message::Gap { .. }) => Some(false),
            (Self::Command, Message::Finished { .. })
            | (Self::JobOutput, Message::JobState { .. })
            | (Self::JobStarted, Message::JobStarted { .. })
            | (Self::Stated, Message::Stated { .. })
            | (Self::File { begun: true } | Self::Files | Self::Done, Message::Done {})
            | (Self::Updated, Message::Updated { .. })
            | (Self::Missing, Message::MissingAre { .. })
            | (Self::Attributes, Message::AttributesAre { .. })
            | (Self::Facts, Message::FactsAre { .. }) => Some(true),
            (Self::File { begun }, Message::FileIs { .. }) => {
                (!std::mem::replace(begun, true)).then_some(false)
            }
            (Self::File { begun: true }, Message::Data { .. }) | (Self::Files, Message::Block { .. }) => {
                Some(false)
            }
            (Self::Entries, Message::Entries { last, .. }) => Some(last.is_some()),
            (Self::Tunnel { open, .. }, Message::Opened {}) => {
                (!std::mem::replace(open, true)).then_some(false)
            }
            (Self::Tunnel { open: true, guest_ended: false, .. }, Message::Data { .. }) => Some(false),
            // The answer to a reset that was sent before the connection was open.
            (Self::Tunnel { open: false, host_ended: true, .. }, Message::Reset {}) => Some(true),
            (Self::Tunnel { open: true, guest_ended, host_ended }, Message::Eof {} | Message::Reset {}) => {
                (!std::mem::replace(guest_ended, true)).then_some(*host_ended)
            }
            _ => None,
        }
    }
}

/// The credit that a message uses; `None` where it is longer than allowed.
pub(super) fn cost(message: &Message) -> Option<u32> {
    match message {
        Message::Data { bytes } | Message::Output { bytes, .. } => {
            (bytes.len() <= wire::CHUNK).then(|| wire::cost(bytes.len()))
        }
        Message::Block { block } => (block.size() <= wire::CHUNK).then(|| wire::cost(block.size())),
        Message::Gap { .. } => Some(wire::FRAME_COST),
        Message::Entries { entries, removed, .. } => {
            let entries = entries.iter().map(wire::entry_cost).sum::<u32>();
            let removed = removed.iter().map(|path| wire::cost(path.as_os_str().len())).sum::<u32>();
            Some(entries + removed + wire::FRAME_COST)
        }
        _ => Some(0),
    }
}
