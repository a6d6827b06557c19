//! `registries`: where package managers get packages from.

/// The hosts, each for HTTP and HTTPS: only those that serve what was published. Code forges are excluded, because anybody
/// can send anything there; the hosts from which they serve packages are included.
pub(super) const REGISTRIES: [&str; 37] = [
    // Rust: crates.io, its index and files, and rustup's toolchains.
    "crates.io",
    "index.crates.io",
    "static.crates.io",
    "static.rust-lang.org",
    // Python
    "pypi.org",
    "files.pythonhosted.org",
    // JavaScript, and Node's headers for native modules.
    "registry.npmjs.org",
    "registry.yarnpkg.com",
    "nodejs.org",
    "jsr.io",
    "npm.jsr.io",
    // Go: modules, their checksums, toolchains.
    "proxy.golang.org",
    "sum.golang.org",
    "go.dev",
    "dl.google.com",
    // Ruby
    "rubygems.org",
    "index.rubygems.org",
    // Java
    "repo.maven.apache.org",
    "repo1.maven.org",
    "maven.google.com",
    "plugins.gradle.org",
    "plugins-artifacts.gradle.org",
    "services.gradle.org",
    "downloads.gradle.org",
    // PHP, .NET, Elixir
    "packagist.org",
    "repo.packagist.org",
    "api.nuget.org",
    "repo.hex.pm",
    // Systems
    "deb.debian.org",
    "security.debian.org",
    "archive.ubuntu.com",
    "security.ubuntu.com",
    "ports.ubuntu.com",
    "dl-cdn.alpinelinux.org",
    // Archives and release files of GitHub, to which package managers are redirected.
    "codeload.github.com",
    "objects.githubusercontent.com",
    "release-assets.githubusercontent.com",
];
