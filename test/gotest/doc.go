// Package gotest runs `go test -json` and understands what it says: what became of each package and each test, with all of the output, and
// the short form of it that `go test` prints without -json. It decides nothing about failures; test/run and test/flakes do.
package gotest
