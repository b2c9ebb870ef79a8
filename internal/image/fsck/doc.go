// Package fsck proves that an image store is whole, while no process has it open, and repairs it on request.
//
// It works in two steps: read collects what the databases and the directories say (facts), and changes nothing; judge, a pure
// function of them, says what is wrong (findings). Two kinds of things are wrong: what is damaged, and what is left over by a
// process that was killed. Leftovers take space and nothing else, and the next start of the store removes them too.
//
// Repair loses nothing that is whole: names of images that are not whole are dropped, so that they are pulled again, and what
// belongs to nobody is removed. What a container holds stays, damaged or not.
//
// It does not look at what the kernel and containers do with the layers, and it cannot tell a file whose owner, mode or attributes
// were changed: the digest of a layer says nothing of those on the disk.
package fsck
