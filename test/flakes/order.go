package main

// What is wanted of packages: three whole rounds, and twenty of those that start containers, as most of what is not under a test's control,
// processes, the kernel and its time, is there.
const (
	wantOfAll        = 3
	wantOfContainers = 20
)

// wanted is the number of clean rounds that are wanted of a package; rounds below 0 are the usual ones.
func wanted(p pkg, rounds int) int {
	switch {
	case rounds >= 0:
		return rounds
	case p.Containers:
		return wantOfContainers
	}
	return wantOfAll
}

// next is the package whose turn it is: the one with the fewest clean rounds, so that whole rounds come first, and the first of these. One
// that has failed is left alone: it wants mending. There is none when all is done.
func next(t *tally, packages []pkg, failed map[string]bool, rounds int) (pkg, bool) {
	var best pkg
	found := false
	for _, p := range packages {
		clean := t.of(p).Clean
		if failed[p.Path] || clean >= wanted(p, rounds) {
			continue
		}
		if !found || clean < t.of(best).Clean {
			best, found = p, true
		}
	}
	return best, found
}
