package review

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// Authentication are the resources of authentication.k8s.io/v1. audiences are the API server's own, for which a token is reviewed if none are named.
func Authentication(requests authenticator.Request, audiences authenticator.Audiences) []resource.Resource {
	return resources(authenticationv1.SchemeGroupVersion, map[string]rest.Storage{
		"tokenreviews": storage(kind[authenticationv1.TokenReview]{
			singular: "TokenReview",
			answer: func(ctx context.Context, review *authenticationv1.TokenReview) error {
				return reviewToken(ctx, requests, audiences, review)
			},
		}),
		"selfsubjectreviews": storage(kind[authenticationv1.SelfSubjectReview]{
			singular: "SelfSubjectReview",
			answer: func(ctx context.Context, review *authenticationv1.SelfSubjectReview) error {
				caller, ok := genericrequest.UserFrom(ctx)
				if !ok {
					return apierrors.NewInternalError(errors.New("the request has no user"))
				}
				review.Status = authenticationv1.SelfSubjectReviewStatus{UserInfo: userInfo(caller)}
				return nil
			},
		}),
	})
}

// reviewToken asks the authenticators of the API server itself, with a request that bears nothing but the token.
func reviewToken(ctx context.Context, requests authenticator.Request, own authenticator.Audiences, review *authenticationv1.TokenReview) error {
	if review.Spec.Token == "" {
		return apierrors.NewBadRequest("spec.token of the TokenReview is empty: it must be the token to review")
	}
	audiences := authenticator.Audiences(review.Spec.Audiences)
	if len(audiences) == 0 {
		audiences = own
	}
	req := (&http.Request{Header: http.Header{"Authorization": []string{"Bearer " + review.Spec.Token}}}).WithContext(authenticator.WithAudiences(ctx, audiences))
	resp, ok, err := requests.AuthenticateRequest(req)
	review.Status = authenticationv1.TokenReviewStatus{Authenticated: ok}
	if err != nil {
		review.Status.Error = err.Error()
	}
	if ok && resp != nil && resp.User != nil {
		if len(audiences) > 0 && len(audiences.Intersect(resp.Audiences)) == 0 {
			return apierrors.NewInternalError(fmt.Errorf("the token is for the audiences %q, and was reviewed for %q", resp.Audiences, audiences))
		}
		review.Status.User, review.Status.Audiences = userInfo(resp.User), resp.Audiences
	}
	// The answer does not repeat the secret.
	review.Spec.Token = ""
	return nil
}

func userInfo(u user.Info) authenticationv1.UserInfo {
	info := authenticationv1.UserInfo{Username: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups()}
	for key, values := range u.GetExtra() {
		if info.Extra == nil {
			info.Extra = map[string]authenticationv1.ExtraValue{}
		}
		info.Extra[key] = values
	}
	return info
}
