// Package relist decides how the agent learns what happened in a runtime: when all of it is listed, when the stream of its events is opened again, and
// whether that stream is to be believed. It is pure: what happened comes in with its time, what is to be done comes out.
//
//	          the stream is open            it tells of a pod
//	Listing --------------------> Trying --------------------> Events
//	   ^                             |                           |
//	   +-----------------------------+---------------------------+
//	     the stream ends, or a list shows what it should have told and has not
//
// A stream may be missing (Unimplemented), end at once (CRI-O's default), or be open and say nothing. So it is believed when it has told something, and as
// long as lists do not show more than it told. It is never waited for: while it is not believed, lists find what there is.
package relist
