// Package oneline keeps texts of others on one line of a terminal: a plugin, a damaged file or the API may say anything.
package oneline

import "strings"

// Of is the text with a space for each control character of ASCII, so that it ends no line and no cell, and moves no cursor.
func Of(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, s)
}
