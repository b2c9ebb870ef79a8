package userns

import (
	"testing"
)

func TestChoose(t *testing.T) {
	at := func(i uint32) Range { return Range{firstID + i*Length, Length} }
	all := make([]Range, Slots)
	for i := range all {
		all[i] = at(uint32(i))
	}
	but := func(i int) []Range {
		rest := append([]Range(nil), all[:i]...)
		return append(rest, all[i+1:]...)
	}
	for name, tc := range map[string]struct {
		taken []Range
		want  Range
		none  bool
	}{
		"the first":                        {nil, at(0), false},
		"the next":                         {[]Range{at(0)}, at(1), false},
		"one that was freed":               {[]Range{at(0), at(2)}, at(1), false},
		"in no order, and twice":           {[]Range{at(2), at(0), at(2)}, at(1), false},
		"a longer one":                     {[]Range{{firstID, 3 * Length}}, at(3), false},
		"a shorter one":                    {[]Range{{firstID + 5, 1}}, at(1), false},
		"across a border":                  {[]Range{{firstID + Length - 1, 2}}, at(2), false},
		"from below":                       {[]Range{{Length, firstID}}, at(1), false},
		"below":                            {[]Range{{Length, Length}}, at(0), false},
		"up to the first":                  {[]Range{{firstID - Length, Length}}, at(0), false},
		"above":                            {[]Range{{endID, Length}}, at(0), false},
		"nothing":                          {[]Range{{firstID, 0}}, at(0), false},
		"all IDs":                          {[]Range{{0, 1<<32 - 1}}, Range{}, true},
		"the last":                         {but(Slots - 1), at(Slots - 1), false},
		"one in the middle of all of them": {but(77), at(77), false},
		"all":                              {all, Range{}, true},
	} {
		got, ok := Choose(tc.taken)
		if got != tc.want || ok == tc.none {
			t.Errorf("%s: %+v, %t", name, got, ok)
		}
	}
}

// The IDs that may be chosen are systemd's for containers, beyond those that useradd gives to people, and whole ranges.
func TestWhereRangesAre(t *testing.T) {
	if firstID%Length != 0 || endID%Length != 0 || firstID < 600100000 || endID-1 > 1879048191 || Slots < 4096 {
		t.Errorf("from %d to %d, %d of them", firstID, endID-1, Slots)
	}
}

func TestRecords(t *testing.T) {
	r := Range{1 << 30, Length}
	const version1 = `{"version":1,"first":1073741824,"length":65536}`
	if raw, err := Encode(r); err != nil || string(raw) != version1 {
		t.Errorf("%s, %v", raw, err)
	}
	for raw, want := range map[string]Range{
		version1:        r,
		version1 + "\n": r,
		`{"version":1,"first":65536,"length":131072}`: {65536, 131072},
		"":                                                {},
		"{":                                               {},
		`{"first":1073741824,"length":65536}`:             {},
		`{"version":2,"first":65536,"length":1}`:          {},
		`{"version":1,"first":0,"length":65536}`:          {},
		`{"version":1,"first":65535,"length":1}`:          {},
		`{"version":1,"first":65536,"length":0}`:          {},
		`{"version":1,"first":-65536,"length":1}`:         {},
		`{"version":1,"first":4294901760,"length":65535}`: {4294901760, 65535},
		`{"version":1,"first":4294901760,"length":65536}`: {},
		`{"version":1,"first":4294967296,"length":1}`:     {},
	} {
		if got, err := Decode([]byte(raw)); got != want || (err == nil) != (want != Range{}) {
			t.Errorf("%q: %+v, %v", raw, got, err)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{"", "{", `{"version":1,"first":1073741824,"length":65536}`, `{"version":1,"first":4294967295,"length":4294967295}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := Decode(raw)
		if err != nil {
			return
		}
		if r.First < Length || r.Length == 0 {
			t.Errorf("%+v", r)
		}
		if c, ok := Choose([]Range{r}); ok && c.First < r.First+r.Length && r.First < c.First+c.Length {
			t.Errorf("%+v beside %+v", c, r)
		}
	})
}
