//! Compressed files as distributions ship them: kernel modules and the kernel within a `bzImage`.
//!
//! The compression is told by the first bytes. Decoders are pure Rust, so that nothing need be
//! installed.

use std::io::Read;

/// A file that could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The decoder stopped.
    #[error("damaged {format} data: {source}")]
    Damaged {
        /// The format.
        format: &'static str,
        /// What the decoder said.
        source: std::io::Error,
    },
    /// No format known begins so.
    #[error("compressed in a way that is not known here (known: xz, zstd, gzip)")]
    Unknown,
}

const XZ: &[u8] = b"\xfd7zXZ\0";
const ZSTD: &[u8] = b"\x28\xb5\x2f\xfd";
const GZIP: &[u8] = b"\x1f\x8b";
const ELF: &[u8] = b"\x7fELF";

/// Unpacks a file; what is an ELF file already comes back as it is. Bytes after the compressed data
/// are left alone, as a `bzImage` has some.
///
/// # Errors
/// If the data are damaged or the format is not known.
pub(crate) fn decompress(data: &[u8]) -> Result<Vec<u8>, DecompressError> {
    let mut out = Vec::new();
    let (format, result) = if data.starts_with(ELF) {
        return Ok(data.to_vec());
    } else if data.starts_with(XZ) {
        (
            "xz",
            lzma_rust2::XzReader::new(data, false)
                .read_to_end(&mut out)
                .map(drop),
        )
    } else if data.starts_with(ZSTD) {
        ("zstd", zstd(data, &mut out))
    } else if data.starts_with(GZIP) {
        (
            "gzip",
            flate2::read::GzDecoder::new(data)
                .read_to_end(&mut out)
                .map(drop),
        )
    } else {
        return Err(DecompressError::Unknown);
    };
    match result {
        Ok(()) => Ok(out),
        Err(source) => Err(DecompressError::Damaged { format, source }),
    }
}

fn zstd(data: &[u8], out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(data)
        .map_err(|error| std::io::Error::other(error.to_string()))?;
    decoder.read_to_end(out).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn gzip_is_unpacked_and_trailing_bytes_do_not_matter() {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        encoder.write_all(b"module").expect("in memory");
        let mut packed = encoder.finish().expect("in memory");
        packed.extend_from_slice(&[1, 2, 3, 4]);
        assert_eq!(decompress(&packed).expect("whole"), b"module");
    }

    #[test]
    fn an_elf_file_comes_back_as_it_is() {
        assert_eq!(decompress(b"\x7fELFxyz").expect("as is"), b"\x7fELFxyz");
    }

    #[test]
    fn damage_and_unknown_formats_are_told() {
        assert!(matches!(
            decompress(b"hello"),
            Err(DecompressError::Unknown)
        ));
        assert!(matches!(
            decompress(b"\xfd7zXZ\0garbage"),
            Err(DecompressError::Damaged { format: "xz", .. })
        ));
        assert!(matches!(
            decompress(b"\x28\xb5\x2f\xfdgarbage"),
            Err(DecompressError::Damaged { format: "zstd", .. })
        ));
    }
}
