// Package book is who has which devices, who waits for which, and what is decided about those who ask. It is pure: it asks no source, writes no disk and
// tells nobody. Package devices does, and notes here what has come of it.
//
// What is decided is one function, Decide: of the book, of the world (what the sources know), of a request, and of advice (what the sources have said when they
// were asked about this request). It gives devices, or a question that is to be asked first, or says what the pod waits for, or refuses it. Enter notes a decision.
// From then on what is chosen is nobody else's; that it is on disk before a container has it, the Phase of each pod tells:
//
//	           Enter             Promise              Wrote
//	(nothing) ------> Chosen ------------> Promised --------> Written
//	    ^                |  Retract           |  Retract         |  ^
//	    +----------------+--------------------+                  |  | Amend
//	    +--------------------------------------------------------+--+
//	                              Erase
//
// A pod of which something is on record can be given more (for its containers that have nothing yet): then it goes from Written to Chosen and on, or back.
// Before the book was compared with what runs (Compare), nothing is decided, and a pod that gives back what it has is Gone: what its containers say is over.
//
// The transcripts in testdata show it step by step.
package book
