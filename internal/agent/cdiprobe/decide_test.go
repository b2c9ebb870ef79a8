package cdiprobe

import (
	"testing"

	"google.golang.org/grpc/codes"
)

func TestNext(t *testing.T) {
	created := outcome{created: true}
	refused := func(c codes.Code) outcome { return outcome{code: c} }
	for name, c := range map[string]struct {
		seen   []outcome
		what   attempt
		answer Answer
	}{
		"nothing is known":                      {nil, probe, Unknown},
		"created with what does not exist":      {[]outcome{created}, done, Ignores},
		"refused, for whatever reason":          {[]outcome{refused(codes.Unknown)}, control, Unknown},
		"refused, as not found":                 {[]outcome{refused(codes.NotFound)}, control, Unknown},
		"the runtime is away":                   {[]outcome{refused(codes.Unavailable)}, done, Unknown},
		"it is too slow":                        {[]outcome{refused(codes.DeadlineExceeded)}, done, Unknown},
		"nobody wants to know any more":         {[]outcome{refused(codes.Canceled)}, done, Unknown},
		"it has too much to do":                 {[]outcome{refused(codes.ResourceExhausted)}, done, Unknown},
		"it did not get to the end":             {[]outcome{refused(codes.Aborted)}, done, Unknown},
		"refused without it as well":            {[]outcome{refused(codes.Internal), refused(codes.Internal)}, done, Unknown},
		"away when it was to be created":        {[]outcome{refused(codes.Internal), refused(codes.Unavailable)}, done, Unknown},
		"created without it":                    {[]outcome{refused(codes.Unknown), created}, probe, Unknown},
		"refused with it, and only with it":     {[]outcome{refused(codes.Unknown), created, refused(codes.Unknown)}, done, Honours},
		"refused with it, in other words":       {[]outcome{refused(codes.Unknown), created, refused(codes.InvalidArgument)}, done, Honours},
		"the first refusal was for another why": {[]outcome{refused(codes.Unknown), created, created}, done, Ignores},
		"away the second time":                  {[]outcome{refused(codes.Unknown), created, refused(codes.Unavailable)}, done, Unknown},
	} {
		if what, answer := next(c.seen); what != c.what || answer != c.answer {
			t.Errorf("%s: attempt %d, answer %d", name, what, answer)
		}
	}
}
