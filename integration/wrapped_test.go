package integration

var fronts = []front{bare}
