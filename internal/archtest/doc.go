// Package archtest holds the import rules of docs/ARCHITECTURE.md as a test. It has no code of its own beside it.
package archtest
