//! The kernel image that is booted.
//!
//! Distributions ship a `bzImage`: a loader with the compressed ELF kernel within. QEMU can start the ELF
//! kernel itself, which spares the emulated machine the unpacking (2 to 3 s); where it cannot be taken
//! out, the `bzImage` is booted as it is.

use crate::decompress::decompress;

const SETUP_SECTORS: usize = 0x1f1;
const SIGNATURE: usize = 0x202;
const VERSION_POINTER: usize = 0x20e;
const PAYLOAD_OFFSET: usize = 0x248;
const PAYLOAD_LENGTH: usize = 0x24c;

/// A `bzImage`, by the x86 boot protocol (Documentation/arch/x86/boot.rst of the kernel).
#[derive(Clone, Copy, Debug)]
pub(crate) struct BzImage<'a> {
    bytes: &'a [u8],
}

impl<'a> BzImage<'a> {
    /// `None` if it is none.
    pub(crate) fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.get(SIGNATURE..SIGNATURE + 4)? == b"HdrS").then_some(Self { bytes })
    }

    /// The version, as `uname -r` shows it.
    pub(crate) fn version(&self) -> Option<&'a str> {
        let pointer: [u8; 2] = self.bytes.get(VERSION_POINTER..)?.first_chunk().copied()?;
        let text = self
            .bytes
            .get(usize::from(u16::from_le_bytes(pointer)) + 0x200..)?;
        let end = text.iter().position(|byte| *byte == b' ' || *byte == 0)?;
        std::str::from_utf8(&text[..end]).ok()
    }

    /// The ELF kernel within; `None` if it is packed in a way that is not known here.
    pub(crate) fn elf(&self) -> Option<Vec<u8>> {
        // A setup size of 0 means 4 sectors, by the protocol.
        let sectors = match *self.bytes.get(SETUP_SECTORS)? {
            0 => 4,
            sectors => usize::from(sectors),
        };
        let start = (sectors + 1) * 512 + self.word(PAYLOAD_OFFSET)?;
        let payload = self
            .bytes
            .get(start..start.checked_add(self.word(PAYLOAD_LENGTH)?)?)?;
        let kernel = decompress(payload).ok()?;
        kernel.starts_with(b"\x7fELF").then_some(kernel)
    }

    fn word(&self, at: usize) -> Option<usize> {
        let bytes: [u8; 4] = self.bytes.get(at..)?.first_chunk().copied()?;
        usize::try_from(u32::from_le_bytes(bytes)).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::BzImage;
    use std::io::Write;

    fn image() -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"\x7fELF kernel").expect("in memory");
        let payload = encoder.finish().expect("in memory");
        let mut image = vec![0; 1024 + 16];
        image[0x1f1] = 1;
        image[0x202..0x206].copy_from_slice(b"HdrS");
        image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
        image[0x300..0x30d].copy_from_slice(b"6.12-test #1\0");
        image[0x248..0x24c].copy_from_slice(&16u32.to_le_bytes());
        let length = u32::try_from(payload.len()).expect("small");
        image[0x24c..0x250].copy_from_slice(&length.to_le_bytes());
        image.extend_from_slice(&payload);
        image
    }

    #[test]
    fn version_and_kernel_are_found() {
        let bytes = image();
        let image = BzImage::new(&bytes).expect("an image");
        assert_eq!(image.version(), Some("6.12-test"));
        assert_eq!(image.elf().as_deref(), Some(&b"\x7fELF kernel"[..]));
    }

    #[test]
    fn what_is_no_image_or_cut_is_told() {
        assert!(BzImage::new(b"\x7fELF").is_none());
        let bytes = image();
        let cut = BzImage::new(&bytes[..bytes.len() - 1]).expect("still begins as one");
        assert!(cut.elf().is_none());
    }
}
