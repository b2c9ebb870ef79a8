// Package protocol is the contract between monopod and monopod-executor: messages, and their framing.
//
// The transport is a unix stream socket (mode 0600; a peer that is not root is closed without an answer). Each side
// sends frames; a frame carries a JSON envelope and at most MaxFDs file descriptors. Calls are multiplexed: a call may be
// answered by notes before its one reply, and may be cancelled. Errors travel as a class and a message.
//
// The first call on a connection is Hello, which agrees on the version.
package protocol
