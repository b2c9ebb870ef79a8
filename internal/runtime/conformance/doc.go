// Package conformance holds the runtime against CRI's text: two tables, docs/reference/CRI-FIELDS.md with every field of every message
// and docs/reference/CRI-RULES.md with every rule of the comments, say what is done and which test proves it. A field or a rule that
// is not listed fails this package's tests, and so does a proof that is not there. docs/reference/REGISTRIES.md, with what registries do, is
// held against the tests of package image in the same way.
package conformance
