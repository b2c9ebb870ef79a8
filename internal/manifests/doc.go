// Package manifests keeps in the API what lies in a directory: objects of files that come or change are applied, those of files that go are deleted.
//
// It guarantees:
//   - an object that it has made is never forgotten: which ones there are is written to the API (Inventory) before the first of them is applied;
//   - nothing is deleted because something could not be read: objects of a file with a fault stay as they are, and when the directory is not there all do;
//   - what somebody else has made is not deleted: only objects that it has applied, and that are still the same ones.
//
// Objects are applied on the server's side (KEP-555) by the field manager Manager, which takes fields over that others have set; unknown fields are errors. They are applied
// at a start and when their file has changed, and not when somebody else changes them meanwhile. What could not be done is told of in the log and in an event
// of the node, and tried again until it can.
package manifests
