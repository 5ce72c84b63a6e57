//! Reports: projections of one run record, none of which knows more than it.

pub mod certificate;
pub mod html;
pub mod junit;
pub mod markdown;
pub mod text;
