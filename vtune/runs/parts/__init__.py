"""`vtune parts`: the parts that exist, and whether those in a user's file keep their promises."""
