// Package podlog reads the logs of containers in CRI's format, one record a line:
//
//	2026-01-02T15:04:05.999999999Z stdout F the line
//	2026-01-02T15:04:05.999999999Z stderr P the first part of a long line, goes on in the next record of this stream
//
// What is counted and filtered are the lines that the container wrote, not the records that a long one is cut into.
// The files are outside data: a line that is not a record is passed on as it is, with no time of its own.
package podlog
