package ocispec

import (
	"strings"
)

// PasswdEntry is a line of /etc/passwd (passwd(5)).
type PasswdEntry struct {
	Name     string
	UID, GID uint32
	Home     string
}

// GroupEntry is a line of /etc/group (group(5)).
type GroupEntry struct {
	Name    string
	GID     uint32
	Members []string
}

// ParsePasswd reads the lines that are well-formed. Others are skipped, as the C library does: an image's file is
// nobody's input to correct when a container starts.
func ParsePasswd(data []byte) []PasswdEntry {
	var all []PasswdEntry
	for f := range fieldsOf(data) {
		if len(f) < 4 {
			continue
		}
		uid, ok1 := parseID(f[2])
		gid, ok2 := parseID(f[3])
		if !ok1 || !ok2 {
			continue
		}
		entry := PasswdEntry{Name: f[0], UID: uid, GID: gid}
		if len(f) > 5 {
			entry.Home = f[5]
		}
		all = append(all, entry)
	}
	return all
}

// ParseGroup reads the lines that are well-formed, as ParsePasswd does.
func ParseGroup(data []byte) []GroupEntry {
	var all []GroupEntry
	for f := range fieldsOf(data) {
		if len(f) < 3 {
			continue
		}
		gid, ok := parseID(f[2])
		if !ok {
			continue
		}
		entry := GroupEntry{Name: f[0], GID: gid}
		if len(f) > 3 && f[3] != "" {
			entry.Members = strings.Split(f[3], ",")
		}
		all = append(all, entry)
	}
	return all
}

// fieldsOf yields the fields of each line that has a name and is no comment.
func fieldsOf(data []byte) func(yield func([]string) bool) {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(string(data)) {
			line = strings.TrimSpace(line)
			if line == "" || line[0] == '#' || line[0] == ':' {
				continue
			}
			if !yield(strings.Split(line, ":")) {
				return
			}
		}
	}
}
