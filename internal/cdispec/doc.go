// Package cdispec reads the Container Device Interface's specs (CDI 0.3 to 1.1) in a host's folders, for those who count the devices
// in them and for those who inject them: both must mean the same by a name.
//
// Specs are parsed by the CDI project's library, strictly, and are checked by it and by what its specification says beyond that: the
// segments of a kind, hooks' paths and time-outs. Two things that it refuses are allowed by the specification, and here: a kind that
// begins with a digit, and a device without edits of its own. docs/CDI.md has the list.
//
// A file that cannot be used is a fault of the set, and spoils nothing but itself. A device that two files of one folder define is
// nobody's; the definition of a later folder replaces that of an earlier one.
package cdispec
