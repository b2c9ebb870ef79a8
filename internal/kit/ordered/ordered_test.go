package ordered

import (
	"fmt"
	"testing"
)

func TestMap(t *testing.T) {
	var got string
	for k, v := range Map(map[string]int{"c": 3, "a": 1, "b": 2, "d": 4}) {
		if k == "d" {
			break
		}
		got += fmt.Sprint(k, v, " ")
	}
	if got != "a1 b2 c3 " {
		t.Errorf("it goes by %q", got)
	}
}
