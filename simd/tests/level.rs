//! The choice of a level. One test, since a process chooses once.

use watershed_simd::{Kernels, Level, level};

#[test]
fn levels_are_named_available_and_chosen() {
    for level in Level::ALL {
        assert_eq!(Level::from_name(level.name()), Some(level));
        assert_eq!(Kernels::at(level).is_some(), level.is_available());
    }
    assert_eq!(Level::from_name("mmx"), None);
    assert!(Level::Scalar.is_available());
    let available: Vec<Level> = Level::available().collect();
    assert!(available.contains(&Level::best()) && available.contains(&level::chosen()));
    match std::env::var(level::ENVIRONMENT_VARIABLE) {
        Ok(name) if Level::from_name(&name).is_some_and(Level::is_available) => {
            assert_eq!(level::chosen().name(), name);
            assert_eq!(level::ignored_request(), None);
        }
        Ok(name) => {
            assert_eq!(level::chosen(), Level::best());
            assert_eq!(level::ignored_request(), Some(name));
        }
        Err(_) => assert_eq!((level::chosen(), level::ignored_request()), (Level::best(), None)),
    }
    assert_eq!(Kernels::chosen().level(), level::chosen());
}
