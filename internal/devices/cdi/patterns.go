package cdi

import (
	"path"
	"slices"
	"strings"
)

// patterns are names with the wild cards of package path. Most have none, and are looked up.
type patterns struct {
	plain map[string]bool
	wild  []string
}

func newPatterns(list []string) patterns {
	p := patterns{plain: map[string]bool{}}
	for _, s := range list {
		if strings.ContainsAny(s, `*?[\`) {
			p.wild = append(p.wild, s)
		} else {
			p.plain[s] = true
		}
	}
	return p
}

func (p patterns) match(name string) bool {
	return p.plain[name] || slices.ContainsFunc(p.wild, func(pattern string) bool {
		ok, err := path.Match(pattern, name)
		return ok && err == nil
	})
}
