package archtest

import (
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	// link is a link of Markdown to a file of the repository, and the heading in it.
	link = regexp.MustCompile(`\]\(([^()\s#:]*)(?:#([^()\s]+))?\)`)
	// dropped is what a heading loses on its way to an anchor.
	dropped = regexp.MustCompile("[^a-z0-9 _-]")
)

// pages are the files of Markdown of the repository, by their paths in it.
func pages(t *testing.T) map[string]string {
	t.Helper()
	root := filepath.Join("..", "..")
	files, err := exec.Command("git", "-C", root, "ls-files", "--cached", "--others", "--exclude-standard", "*.md").Output()
	if err != nil {
		t.Fatalf("git ls-files: %v", err)
	}
	all := map[string]string{}
	for file := range strings.Lines(string(files)) {
		file = strings.TrimSpace(file)
		raw, err := os.ReadFile(filepath.Join(root, file))
		if os.IsNotExist(err) { // removed, and not yet committed
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		all[file] = string(raw)
	}
	return all
}

// anchors are the names of a page's headings, as GitHub makes them.
func anchors(text string) map[string]bool {
	names := map[string]bool{}
	fenced := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(line, "```") {
			fenced = !fenced
		}
		if heading := strings.TrimLeft(line, "#"); !fenced && heading != line && strings.HasPrefix(heading, " ") {
			name := dropped.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
			names[strings.ReplaceAll(name, " ", "-")] = true
		}
	}
	return names
}

// TestLinks: each link of a page leads to a file that is there, and to a heading in it.
func TestLinks(t *testing.T) {
	all := pages(t)
	for file, text := range all {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			target := file
			if m[1] != "" {
				target = path.Join(path.Dir(file), m[1])
			}
			if _, err := os.Stat(filepath.Join("..", "..", target)); err != nil {
				t.Errorf("%s: the link %q: there is no file %s", file, m[1], target)
			} else if page, ok := all[target]; ok && m[2] != "" && !anchors(page)[m[2]] {
				t.Errorf("%s: the link %q: %s has no heading #%s", file, m[1]+"#"+m[2], target, m[2])
			}
		}
	}
}

// TestPagesAreListed: who opens an index of the documentation finds every page.
func TestPagesAreListed(t *testing.T) {
	all := pages(t)
	listed := func(index string) map[string]bool {
		names := map[string]bool{}
		for _, m := range link.FindAllStringSubmatch(all[index], -1) {
			names[path.Join(path.Dir(index), m[1])] = true
		}
		return names
	}
	for dir, index := range map[string]string{"docs": "docs/README.md", "docs/reference": "docs/README.md", "docs/adr": "docs/adr/README.md", "docs/recipes": "docs/recipes/README.md"} {
		names := listed(index)
		for file := range all {
			if path.Dir(file) == dir && file != index && !names[file] {
				t.Errorf("%s does not list %s", index, file)
			}
		}
	}
}

// TestWhatToReadIsThere: the packages that the page of recipes sends its reader to are there.
func TestWhatToReadIsThere(t *testing.T) {
	const page = "docs/recipes/README.md"
	for _, name := range regexp.MustCompile(`\b(?:internal|cmd|api)/[a-z0-9/.]*[a-z0-9]`).FindAllString(pages(t)[page], -1) {
		if _, err := os.Stat(filepath.Join("..", "..", name)); err != nil {
			t.Errorf("%s: there is no %s", page, name)
		}
	}
}
