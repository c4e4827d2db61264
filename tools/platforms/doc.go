// Package platforms has nothing but tests: what .goreleaser.yaml builds compiles
// on every platform named there, and is the same bytes wherever it is built.
// They read the file themselves, since goreleaser takes minutes to compile.
package platforms
