//! Pages word by word, against the kernel's description of them.

use super::*;

const HEADER_PAGE_64: &str = "\tfield: u64 timestamp;\toffset:0;\tsize:8;\tsigned:0;\n\
    \tfield: local_t commit;\toffset:8;\tsize:8;\tsigned:1;\n\
    \tfield: int overwrite;\toffset:8;\tsize:1;\tsigned:1;\n\
    \tfield: char data;\toffset:16;\tsize:4080;\tsigned:0;\n";

fn layout() -> PageLayout {
    PageLayout::parse(HEADER_PAGE_64).unwrap()
}

/// A page of 4096 bytes with these words of records.
fn page(timestamp_ns: u64, flags: u32, words: &[u32]) -> Vec<u8> {
    let mut page = timestamp_ns.to_le_bytes().to_vec();
    page.extend(u64::from(flags | (words.len() as u32 * 4)).to_le_bytes());
    page.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    page.resize(4096, 0);
    page
}

fn header(type_len: u32, delta: u32) -> u32 {
    delta << 5 | type_len
}

/// Time stamp, id and size of each record, and the error that ended them.
fn parsed(words: &[u32]) -> (Vec<(u64, u16, usize)>, Option<PageError>) {
    let bytes = page(1_000, 0, words);
    let mut records = Vec::new();
    for record in Page::parse(&bytes, layout()).unwrap().records() {
        match record {
            Ok(record) => records.push((record.timestamp_ns, record.event_id, record.bytes.len())),
            Err(error) => return (records, Some(error)),
        }
    }
    (records, None)
}

#[test]
fn layouts_of_both_word_sizes() {
    assert_eq!(layout().page_size_bytes(), 4096);
    let narrow = HEADER_PAGE_64.replace("offset:8;\tsize:8", "offset:8;\tsize:4");
    assert_eq!(PageLayout::parse(&narrow), None, "the data must follow the commit");
    let narrow = narrow.replace("offset:16;\tsize:4080", "offset:12;\tsize:4084");
    assert_eq!(PageLayout::parse(&narrow).unwrap().page_size_bytes(), 4096);
    assert_eq!(PageLayout::parse(""), None);
    assert_eq!(PageLayout::parse(&HEADER_PAGE_64.replace("4080", "99999999999999999999")), None);
}

#[test]
fn every_kind_of_record() {
    let words = [
        header(1, 5),
        0x0001_0007, // id 7
        header(0, 10),
        12,
        8,
        0,
        header(29, 1),
        8,
        0xFFFF_FFFF,
        header(30, 2),
        1,
        header(1, 0),
        9,
        header(31, 77),
        3,
        header(1, 1),
        10,
    ];
    let (records, error) = parsed(&words);
    assert_eq!(error, None);
    let stamp = 77 + (3 << 27);
    assert_eq!(records, [(1_005, 7, 4), (1_015, 8, 8), (1_018 + (1 << 27), 9, 4), (stamp + 1, 10, 4)]);
}

#[test]
fn absolute_stamps_keep_the_bits_that_they_have_no_room_for() {
    let high = 5 << 59;
    let words = [header(31, 7), 0, header(1, 0), 1];
    let bytes = page(high + 3, 0, &words);
    let first = Page::parse(&bytes, layout()).unwrap().records().next().unwrap().unwrap();
    assert_eq!(first.timestamp_ns, high + 7);
    // The page began just before a period ended, the stamp lies just behind it.
    let bytes = page(high + (1 << 59) - 1, 0, &words);
    let first = Page::parse(&bytes, layout()).unwrap().records().next().unwrap().unwrap();
    assert_eq!(first.timestamp_ns, high + (1 << 59) + 7);
}

#[test]
fn every_error_has_its_number() {
    use PageError::*;
    for (words, error) in [
        (&[header(29, 0), 8, 0][..], NullPadding),
        (&[header(29, 1)], ShortPaddingLength),
        (&[header(29, 1), 3], InvalidPaddingLength),
        (&[header(29, 1), 9, 0], EndOverflow),
        (&[header(30, 1)], ShortTimeExtend),
        (&[header(31, 1)], ShortTimeStamp),
        (&[header(0, 1)], ShortDataLength),
        (&[header(0, 1), 0], ZeroDataLength),
        (&[header(0, 1), 3], InvalidDataLength),
        (&[header(0, 1), 4], ShortEventId),
        (&[header(0, 1), 13, 0], EndOverflow),
        (&[header(2, 1), 0], EndOverflow),
    ] {
        let with_one_before = [&[header(1, 1), 3], words].concat();
        assert_eq!(parsed(&with_one_before), (vec![(1_001, 3, 4)], Some(error)), "{words:?}");
    }
    let mut short = page(0, 0, &[0]);
    short[8] = 3;
    let page = Page::parse(&short, layout()).unwrap();
    assert_eq!(page.records().next(), Some(Err(ShortEventHeader)));
}

#[test]
fn headers_and_losses() {
    let one = [header(1, 1), 3];
    let parse = |bytes: &[u8]| Page::parse(bytes, layout()).map(|p| (p.has_lost_events, p.lost_events));
    assert_eq!(parse(&page(0, 0, &one)), Ok((false, None)));
    assert_eq!(parse(&page(0, EVENTS_LOST, &one)), Ok((true, None)));
    let mut counted = page(0, EVENTS_LOST | COUNT_STORED, &one);
    counted[24..32].copy_from_slice(&42_u64.to_le_bytes());
    assert_eq!(parse(&counted), Ok((true, Some(42))));
    let error = Err(PageError::InvalidPageHeader);
    assert_eq!(parse(&page(0, 0, &[])), error, "no records");
    assert_eq!(parse(&page(0, 0, &one)[..20]), error, "cut");
    assert_eq!(parse(&page(0, 5_000, &one)), error, "longer than the page");
    assert_eq!(parse(&[]), error);
}
